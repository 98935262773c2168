"""Cases of reads and guards that change their object, which all ranks of a job run: `weft run -n N
python frozen.py CASE`. Each rank that has found everything right prints a line."""

import weft
from cases import raises, run


def assigns(self):
    self.count += 1
    return True


def appends(self):
    self.items.append("guard")
    return True


def fails(self):
    self.items.append("guard")
    raise KeyError("fails")


@weft.shared
class Book:
    def __init__(self):
        self.count, self.items, self.deep = 0, [], {"a": [1]}

    @weft.reads
    def plain(self):
        return len(self.items)

    @weft.reads
    def read_assigns(self):
        self.count += 1

    @weft.reads
    def read_deletes(self):
        del self.count

    @weft.reads
    def read_writes(self):
        self.add(5)

    @weft.reads
    def read_appends(self):
        self.items.append("read")
        return len(self.items)

    @weft.reads
    def read_deep(self):
        self.deep["a"][0] += 1

    @weft.reads
    def read_raises(self):
        self.items.append("read")
        raise KeyError("a read that fails")

    @weft.reads
    def appends_if(self, wanted):
        if wanted:
            self.items.append("read")

    @weft.reads(when=assigns)
    def after_assigns(self):
        return self.count

    @weft.reads(when=appends)
    def after_appends(self):
        return self.count

    @weft.writes(when=assigns)
    def write_after_assigns(self):
        self.items.append("write")

    @weft.writes(when=appends)
    def write_after_appends(self):
        self.items.append("write")

    @weft.writes(when=fails)
    def write_after_fails(self):
        self.items.append("write")

    @weft.writes
    def add(self, number):
        self.count += number

    @weft.writes
    def delete(self):
        del self.count
        self.count = 0

    @weft.writes
    def value(self):
        """Is executed after what other ranks have done before."""
        return repr(sorted(vars(self).items()))


def is_equal(job, book, value):
    """All ranks have the object with this value."""
    job.world.barrier()
    assert book.value() == value, (book.value(), value)
    assert len(set(job.world.allgather(book.value().encode()))) == 1
    job.world.barrier()


def has_done(call):
    try:
        call()
    except weft.OperationError:
        return False
    return True


def reads(job):
    """A read that changes its object gets an error at its rank, and has changed nothing."""
    for at in ("replicated", 1):
        book = job.share(Book, f"at {at}", at=at)
        before = book.value()
        # The executions of methods are counted at the rank that has the object.
        if job.rank == 1:
            why = f"'at {at}', which is marked by weft.reads, ", "mark it by weft.writes"
            for _ in range(5):
                error = weft.OperationError
                raises(error, book.read_assigns, "Book.read_assigns", "'count'", *why)
                raises(error, book.read_deletes, "Book.read_deletes", "'count'", *why)
                raises(error, book.read_writes, "Book.read_writes", "'count'", *why)
            for _ in range(2):
                raises(error, book.read_appends, "Book.read_appends", "was undone", *why)
                raises(error, book.read_deep, "Book.read_deep", "was undone", *why)
                failure = raises(KeyError, book.read_raises, "a read that fails")
                assert "was undone" in failure.__notes__[0], failure.__notes__
            for number in range(1, 17):
                if number in (4, 8, 16):
                    raises(error, lambda: book.appends_if(True), "was undone")
                else:
                    book.appends_if(False)
        is_equal(job, book, before)
        book.add(1)
        is_equal(job, book, before.replace("'count', 0", f"'count', {job.size}"))
        book.delete()
        is_equal(job, book, before)


def guards(job):
    """An operation whose guard changes the object fails, and no replica is another one."""
    error, rule = weft.OperationError, "a guard may change nothing"
    for at in ("replicated", 1):
        book = job.share(Book, f"at {at}", at=at)
        before = book.value()
        here = at == "replicated"
        job.world.barrier()
        if job.rank == 1:
            # Executions at rank 1 alone count: the 1st and the 2nd one of a guard are checked.
            for _ in range(2):
                # Two operations have this guard.
                names = "the guard of Book.after_assigns and write_after_assigns of", "'count'"
                raises(error, book.after_assigns, *names, rule)
                raises(error, book.after_appends, "the guard of Book.after_appends", rule)
        is_equal(job, book, before)
        # And those in the order of all ranks.
        for turn in range(2):
            if job.rank == turn * (job.size - 1):
                call = book.write_after_assigns
                raises(error, call, "write_after_assigns of", "'count'", rule)
                call = book.write_after_appends
                raises(error, call, "the guard of Book.write_after_appends", "was undone", rule)
                failure = raises(KeyError, book.write_after_fails, "fails")
                assert "was undone" in failure.__notes__[0], failure.__notes__
            is_equal(job, book, before)
        # Reads of one rank, whose checks others do not make, do not count.
        if here and job.rank == 0:
            for _ in range(10):
                book.plain()
        # Executions that are not checked are equal as well: all ranks execute them.
        done = sum(has_done(book.write_after_appends) for _ in range(2)) if here else 0
        # Of the 3rd to the 8th, the 4th and the 8th are checked.
        assert job.world.allreduce(done) == (2 * job.size - 2 if here else 0)
        assert len(set(job.world.allgather(book.value().encode()))) == 1
        job.world.barrier()


@weft.shared(placement="adaptive")
class Moves(Book):
    pass


def moves(job):
    """An object that moves is as before, wherever its guards are checked."""
    moves, last = job.share(Moves, "moves"), job.size - 1
    for _ in range(2):
        job.world.barrier()
        if job.rank == last:
            while f"now at rank {last}" not in repr(moves):
                moves.add(1)
            before = moves.value()
            raises(weft.OperationError, moves.write_after_appends, "was undone")
            raises(weft.OperationError, moves.write_after_assigns, "'count'")
            assert moves.value() == before
        job.world.barrier()
        # A write comes behind the move.
        moves.value()
        job.world.barrier()
        while "now replicated" not in repr(moves):
            moves.plain()
        job.world.barrier()
        if job.rank == 0:
            raises(weft.OperationError, moves.write_after_appends, "was undone")
            raises(weft.OperationError, moves.write_after_assigns, "'count'")
            raises(weft.OperationError, moves.read_assigns, "'count'")
        job.world.barrier()
        assert "guard" not in moves.value()
    assert len(set(job.world.allgather(moves.value().encode()))) == 1


if __name__ == "__main__":
    run()
