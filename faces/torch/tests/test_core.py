"""The core of the backend, without torch: threads are ranks, arrays of C are tensors."""

import ctypes
import struct
import threading

import pytest
from conftest import LONG, Numbers, Store, how

from torch_weft import _core

F32, I64, U8 = ctypes.c_float, ctypes.c_int64, ctypes.c_uint8


@pytest.mark.parametrize("size", [1, 2, 3])
def test_allreduce__adds_in_place_on_all_ranks(ranks, size):
    def program(group, rank):
        values = Numbers(F32, [rank + 1.0, 0.5])
        group.allreduce(values.pieces, ("float32", "SUM"), how(values)).wait()
        return list(values.array)

    wanted = [sum(range(1, size + 1)), 0.5 * size]
    assert ranks(size, program) == [wanted] * size


@pytest.mark.parametrize("by, wanted", [
    ("SUM", 7), ("PRODUCT", 12), ("MIN", 3), ("MAX", 4), ("BAND", 0), ("BOR", 7), ("BXOR", 7),
])
@pytest.mark.parametrize("kind, name", [(I64, "int64"), (U8, "uint8")])
def test_allreduce__each_operation(ranks, by, wanted, kind, name):
    def program(group, rank):
        values = Numbers(kind, [3 + rank])
        group.allreduce(values.pieces, (name, by), how(values)).wait()
        return list(values.array)

    assert ranks(2, program) == [[wanted]] * 2


@pytest.mark.parametrize("by, wanted", [("SUM", [0, 1, 1]), ("PRODUCT", [0, 0, 1])])
def test_allreduce__truth_values_stay_truth_values(ranks, by, wanted):
    def program(group, rank):
        values = Numbers(U8, [0, rank, 1])
        group.allreduce(values.pieces, ("bool", by), how(values)).wait()
        return list(values.array)

    assert ranks(2, program) == [wanted] * 2


def f16(number):
    """Returns the bits of a number of 16 bits, as the module `struct` rounds it."""
    return struct.unpack("<H", struct.pack("<e", number))[0]


def test_allreduce__numbers_of_16_bits_are_added(ranks):
    def program(group, rank):
        halves = Numbers(ctypes.c_uint16, [f16([1024, 1, 2][rank]), f16(-(2.0**-24)), f16(0.5)])
        group.allreduce(halves.pieces, ("float16", "SUM"), how(halves)).wait()
        brains = Numbers(ctypes.c_uint16, [[0x3F80, 0x3B80, 0x7F80][rank], 0xC000])
        group.allreduce(brains.pieces, ("bfloat16", "SUM"), how(brains)).wait()
        return list(halves.array), list(brains.array)

    wanted = [f16(1027), f16(-3 * 2.0**-24), f16(1.5)], [0x7F80, 0xC0C0]
    assert ranks(3, program) == [wanted] * 3


@pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00])
def test_allreduce__each_kind_of_number_of_16_bits_comes_back(ranks, bits):
    def program(group, _rank):
        values = Numbers(ctypes.c_uint16, [bits])
        group.allreduce(values.pieces, ("float16", "MAX"), how(values)).wait()
        return list(values.array)

    assert ranks(2, program) == [[bits]] * 2


def test_allreduce__pieces_are_one_vector(ranks):
    def program(group, rank):
        first, second = Numbers(I64, [rank]), Numbers(I64, [10, rank])
        pieces = first.pieces + [(0, 0)] + second.pieces
        group.allreduce(pieces, ("int64", "SUM"), how((first, second))).wait()
        return list(first.array) + list(second.array)

    assert ranks(2, program) == [[1, 20, 1]] * 2


def test_operations__move_bytes_as_they_say(ranks):
    def program(group, rank):
        own = Numbers(U8, [rank, rank + 10])
        all = [Numbers(U8, [99, 99]) for _ in range(3)]
        every = [each.pieces for each in all]
        found = []

        def note():
            found.append([list(each.array) for each in all])

        group.allgather(own.pieces, every, how((own, all))).wait()
        note()
        group.alltoall(every, every, how(all)).wait()
        note()
        group.gather(1, (own.pieces, every if rank == 1 else []), how((own, all))).wait()
        note()
        one = Numbers(U8, [0, 0])
        group.scatter(1, (every if rank == 1 else [], one.pieces), how((one, all))).wait()
        group.broadcast(2, one.pieces, how(one)).wait()
        group.barrier(how(())).wait()
        return found, list(one.array)

    everyone = [[0, 10], [1, 11], [2, 12]]
    for rank, (found, one) in enumerate(ranks(3, program)):
        exchanged = [[rank, rank + 10]] * 3
        assert found == [everyone, exchanged, everyone if rank == 1 else exchanged]
        assert one == [2, 12]


def test_reductions__to_a_root_and_scattered(ranks):
    def program(group, rank):
        values = Numbers(F32, [rank, 2 * rank])
        group.reduce(1, values.pieces, ("float32", "AVG"), how(values)).wait()
        parts = [Numbers(I64, [rank, 100 * place]) for place in range(2)]
        into = Numbers(I64, [0, 0])
        pieces = [part.pieces for part in parts]
        group.reduce_scatter(pieces, into.pieces, ("int64", "SUM"), how((parts, into))).wait()
        return list(values.array), list(into.array)

    first, second = ranks(2, program)
    assert first == ([0.0, 0.0], [1, 0])
    assert second == ([0.5, 1.0], [1, 200])


def test_messages__match_by_rank_and_tag(ranks):
    def program(group, rank):
        one, two = Numbers(U8, [rank + 1]), Numbers(U8, [rank + 11])
        if rank > 0:
            works = [group.send((0, 7), one.pieces, how(one)),
                     group.send((0, 2**31), two.pieces, how(two))]
            return [work.wait() for work in works]
        ends = [group.recv((2, 2**31), two.pieces, how(two)).wait()]
        found = [list(two.array)]
        for _ in range(2):
            ends.append(group.recv((None, 7), one.pieces, how(one)).wait())
            found.append(list(one.array))
        assert found[0] == [13] and sorted(zip(ends[1:], found[1:])) == [(1, [2]), (2, [3])]
        return [group.recv((1, 2**31), two.pieces, how(two)).wait(), list(two.array)]

    assert ranks(3, program)[0] == [1, [12]]


def test_message__of_another_length_is_an_error_that_names_both(ranks):
    def program(group, rank):
        values = Numbers(U8, [1] * (2 + rank))
        if rank == 0:
            group.send((1, 0), values.pieces, how(values)).wait()
            return None
        with pytest.raises(_core.WeftError, match="rank 0 gave 2 bytes where this rank has 3"):
            group.recv((0, 0), values.pieces, how(values)).wait()

    ranks(2, program)


def test_mismatch__says_who_asked_for_what(ranks):
    def program(group, rank):
        values = Numbers(F32, [1.0] * (2 + rank))
        with pytest.raises(_core.WeftError) as error:
            if rank == 2:
                group.barrier(how(())).wait()
            else:
                group.allreduce(values.pieces, ("float32", "SUM"), how(values)).wait()
        return str(error.value)

    for text in ranks(3, program):
        assert "rank" in text and ("allreduce" in text or "barrier" in text), text


@pytest.mark.parametrize("is_sync", [True, False])
def test_timeout__names_the_rank_that_is_awaited(ranks, is_sync):
    def program(group, rank):
        if rank == 0:
            values = Numbers(F32, [1.0])
            work = group.recv((1, 5), values.pieces, how(values, 0.2, is_sync))
            with pytest.raises(_core.LateError, match=r"recv: Timed out after 0.2 s.*rank 1"):
                work.wait()
            assert work.is_done()
        group.barrier(how(())).wait()

    ranks(2, program)


def test_wait__that_ends_early_leaves_the_operation(ranks):
    def program(group, rank):
        values = Numbers(U8, [rank])
        if rank == 1:
            group.barrier(how(())).wait()
            group.send((0, 1), values.pieces, how(values)).wait()
            return None
        work = group.recv((1, 1), values.pieces, how(values))
        with pytest.raises(_core.LateError):
            work.wait(0.05)
        group.barrier(how(())).wait()
        return work.wait()

    assert ranks(2, program)[0] == 1


def test_on_end__is_called_although_nobody_waits(ranks):
    def program(group, rank):
        values = Numbers(I64, [rank])
        ended = threading.Event()
        work = group.allreduce(values.pieces, ("int64", "SUM"), how(values, is_sync=False))
        work.on_end(ended.set)
        assert ended.wait(30) and work.is_done()
        again = threading.Event()
        work.on_end(again.set)
        assert again.is_set()
        return list(values.array)

    assert ranks(2, program) == [[1]] * 2


def test_abort__ends_the_wait_of_another_thread(ranks):
    is_over = threading.Event()

    def program(group, rank):
        if rank == 1:
            assert is_over.wait(LONG)
            return None
        values = Numbers(U8, [0])
        work = group.recv((1, 0), values.pieces, how(values))
        abort = threading.Timer(0.1, group.abort)
        abort.start()
        with pytest.raises(_core.WeftError, match="recv: .*aborted on this rank"):
            work.wait()
        abort.join()
        with pytest.raises(_core.WeftError, match="aborted on this rank"):
            group.barrier(how(()))
        is_over.set()

    ranks(2, program)


def test_death__of_a_rank_ends_the_operation_of_the_others(ranks):
    survivors = threading.Barrier(2)

    def program(group, rank):
        if rank == 2:
            group.abort()
            return None
        values = Numbers(F32, [1.0])
        with pytest.raises(_core.WeftError, match="allreduce: .*rank 2"):
            group.allreduce(values.pieces, ("float32", "SUM"), how(values)).wait()
        survivors.wait(LONG)

    ranks(3, program)


def test_threads__wait_for_operations_of_one_group(ranks):
    def program(group, rank):
        other = 1 - rank
        found = []

        def exchange(tag):
            mine, theirs = Numbers(I64, [tag]), Numbers(I64, [0])
            for _ in range(50):
                sent = group.send((other, tag), mine.pieces, how(mine))
                group.recv((other, tag), theirs.pieces, how(theirs)).wait()
                sent.wait()
            found.append(theirs.array[0])

        threads = [threading.Thread(target=exchange, args=(tag,)) for tag in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found)

    assert ranks(2, program) == [[0, 1, 2, 3]] * 2


def test_large__vectors_are_added(ranks):
    count = 300_000

    def program(group, rank):
        values = Numbers(F32, [float(rank)] * count)
        group.allreduce(values.pieces, ("float32", "SUM"), how(values)).wait()
        return set(values.array)

    assert ranks(2, program) == [{1.0}] * 2


def test_start__that_nobody_joins_names_who_is_late():
    with pytest.raises(_core.WeftError, match="rank 1 did not get there"):
        _core.Group(Store(), "alone", 0, 2, 0.2)


@pytest.mark.parametrize("method", ["set", "add", "multi_get"])
def test_start__names_the_store_that_fails(ranks, method):
    class Broken(Store):
        pass

    def broken(_self, *_arguments):
        raise ConnectionError("the server of keys has gone")

    setattr(Broken, method, broken)
    with pytest.raises(_core.WeftError, match="torch's store.*the server of keys has gone"):
        ranks(2, lambda group, rank: None, store=Broken())


def test_start__refuses_what_a_store_gives_instead_of_addresses(ranks):
    class Confused(Store):
        def multi_get(self, names):
            return [b"no address"] * len(names)

    with pytest.raises(_core.WeftError):
        ranks(2, lambda group, rank: None, limit=5.0, store=Confused())


def test_overlapping__inputs_and_outputs_of_an_exchange(ranks):
    """The output begins one element after the input, in the same memory."""
    def program(group, rank):
        values = Numbers(I64, [10 * rank, 10 * rank + 1, 99])
        address = values.pieces[0][0]
        given = [[(address + 8 * at, 8)] for at in range(2)]
        taken = [[(address + 8 * at, 8)] for at in range(1, 3)]
        group.alltoall(given, taken, how(values)).wait()
        return list(values.array)

    assert ranks(2, program) == [[0, 0, 10], [10, 1, 11]]


def test_overlapping__an_input_is_a_part_of_the_output(ranks):
    def program(group, rank):
        values = Numbers(I64, [rank] * 3)
        parts = [[(values.pieces[0][0] + 8 * at, 8)] for at in range(3)]
        group.allgather(parts[rank], parts, how(values)).wait()
        return list(values.array)

    assert ranks(3, program) == [[0, 1, 2]] * 3


@pytest.mark.parametrize("values, by, wanted", [
    ([float("inf"), float("-inf")], "SUM", "nan"),
    ([3.0e38, 3.0e38], "SUM", "inf"),
    ([1.0e-45, 1.0e-45], "SUM", repr(ctypes.c_float(2.8e-45).value)),
    ([float("nan"), 1.0], "PRODUCT", "nan"),
])
def test_numbers__at_the_ends_of_their_range(ranks, values, by, wanted):
    def program(group, rank):
        mine = Numbers(F32, [values[rank]])
        group.allreduce(mine.pieces, ("float32", by), how(mine)).wait()
        return repr(mine.array[0])

    assert ranks(2, program) == [wanted] * 2


@pytest.mark.parametrize("kind, by, text", [
    ("float8_e5m2", "SUM", "float8_e5m2"), ("float32", "XOR", "ReduceOp.XOR"),
    ("float32", "BXOR", "F32 have no ReduceOp.BXOR"), ("int32", "AVG", "I32 have no ReduceOp.AVG"),
])
def test_reduction__of_what_there_is_not(ranks, kind, by, text):
    def program(group, _rank):
        values = Numbers(F32, [1.0])
        with pytest.raises(ValueError, match=text):
            group.allreduce(values.pieces, (kind, by), how(values))

    ranks(1, program)
