import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.*;

/** A server with a selector, and clients with streams, with channels, and one that is closed. */
public class Echo {
    static void serve(ServerSocketChannel server, Selector selector) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 16);
        while (selector.isOpen()) {
            selector.select();
            if (!selector.isOpen()) {
                return;
            }
            for (Iterator<SelectionKey> i = selector.selectedKeys().iterator(); i.hasNext();) {
                SelectionKey key = i.next();
                i.remove();
                if (key.isAcceptable()) {
                    SocketChannel one = server.accept();
                    one.configureBlocking(false);
                    one.setOption(StandardSocketOptions.TCP_NODELAY, true);
                    one.register(selector, SelectionKey.OP_READ);
                    continue;
                }
                SocketChannel one = (SocketChannel) key.channel();
                buffer.clear();
                if (one.read(buffer) < 0) {
                    one.close();
                    continue;
                }
                buffer.flip();
                while (buffer.hasRemaining()) {
                    one.write(buffer);
                }
            }
        }
    }

    static void stream(int port, int seed) throws Exception {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            Random random = new Random(seed);
            for (int i = 0; i < 400; i++) {
                byte[] sent = new byte[1 + random.nextInt(3000)];
                random.nextBytes(sent);
                socket.getOutputStream().write(sent);
                byte[] got = socket.getInputStream().readNBytes(sent.length);
                if (!Arrays.equals(sent, got)) {
                    throw new Exception("wrong bytes");
                }
            }
        }
    }

    static void closed(int port) throws Exception {
        SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
        ByteBuffer one = ByteBuffer.allocate(100);
        for (int i = 0; i < 200; i++) {
            one.clear();
            channel.write(one);
            one.clear();
            while (one.hasRemaining()) {
                channel.read(one);
            }
        }
        Thread reader = new Thread(() -> {
            try {
                one.clear();
                channel.read(one);
                System.out.println("read");
            } catch (ClosedChannelException e) {
                // It was closed under this thread.
            } catch (Exception e) {
                System.out.println(e);
            }
        });
        reader.start();
        while (reader.getState() != Thread.State.RUNNABLE) {
            Thread.yield();
        }
        channel.close();
        reader.join();
    }

    interface Work {
        void run() throws Exception;
    }

    /** Starts a thread; its failure is that of the program. */
    static Thread started(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                System.out.println(e);
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] words) throws Exception {
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress("127.0.0.1", 0));
        int port = server.socket().getLocalPort();
        server.configureBlocking(false);
        Selector selector = Selector.open();
        server.register(selector, SelectionKey.OP_ACCEPT);
        Thread serving = started(() -> serve(server, selector));
        List<Thread> clients = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            int seed = i;
            clients.add(started(() -> stream(port, seed)));
        }
        for (Thread client : clients) {
            client.join();
        }
        closed(port);
        selector.close();
        serving.join();
        System.out.println("done");
    }
}
