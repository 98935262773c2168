# Four connections of HTTP ask until an answer begins with a word. A connection that the server
# closes between two answers is made again; an answer that ends early is an error.
import http.client, sys, threading, time

port, stop, paths = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
seen, faults, lock, end = set(), [], threading.Lock(), time.monotonic() + 60


def ask(number):
    connection, n = None, 0
    while stop not in seen or n < 100:
        assert time.monotonic() < end, f"no answer begins with {stop}: {seen}"
        n += 1
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        path = paths[n % len(paths)].replace("SIZE", str((n + number) * 37 % 30000 + 1))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
        except (ConnectionError, http.client.BadStatusLine):
            connection.close()
            connection = None
            time.sleep(0.01)
            continue
        word, rest = answer.read().split(b" ", 1)
        assert answer.status == 200 and rest == b"x" * len(rest), (answer.status, len(rest))
        with lock:
            if not seen:
                print("ready", flush=True)
            seen.add(word.decode())


def guard(number):
    try:
        ask(number)
    except BaseException as fault:
        faults.append(repr(fault))
        seen.add(stop)


threads = [threading.Thread(target=guard, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit("\n".join(faults) if faults else 0)
