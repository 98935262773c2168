"""Fixtures of the tests of the package `weft`. `pytest faces/python/tests` tests the package that
this Python imports. Ranks are programs in the folder `programs`, which tests start."""

import os
import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import weft

PROGRAMS = Path(__file__).parent / "programs"
# A job that takes so many seconds hangs.
LONG = 300


def output_of(words, settings):
    """Runs a command that starts ranks, and returns what all of them print."""
    text = shlex.join(map(str, words))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=os.environ | settings) as process:
        try:
            said, _ = process.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            # The launcher ends its ranks.
            process.terminate()
            said, _ = process.communicate()
            pytest.fail(f"no end after {LONG} s: {text}\n{said}", pytrace=False)
    print(said)
    assert process.returncode == 0, text
    return said


def are_right(said, count, case):
    """Checks that each of the ranks has found everything right."""
    right = [rank for rank in range(count) if f"rank {rank} of {count} is right: {case}" in said]
    assert right == list(range(count))


@pytest.fixture(scope="session")
def job():
    """The job of this process, which is its one rank."""
    with weft.init() as job:
        yield job


@pytest.fixture(scope="session")
def command():
    """The command `weft`: that of the installed package, or else the first in PATH."""
    both = (weft.command(), shutil.which("weft"))
    found = [path for path in both if path and Path(path).is_file()]
    if not found:
        why = "no command `weft`: install the wheel, or add its folder to PATH"
        pytest.fail(why, pytrace=False)
    return Path(found[0])


@pytest.fixture
def ranks(command):
    """A function that runs a case of a program on some ranks, and returns their output."""

    def run(program, case, count, link):
        words = [command, "run", "-n", str(count), sys.executable, PROGRAMS / program, case]
        said = output_of(words, link)
        are_right(said, count, case)
        return said

    return run


@pytest.fixture(scope="session")
def agent(command, tmp_path_factory):
    """The name of an agent that is a cluster of its own, `test`. WEFT_TEST_AGENT names one that
    serves already."""
    if name := os.environ.get("WEFT_TEST_AGENT"):
        yield name
        return
    program = command.with_name("weftd")
    if not program.is_file():
        pytest.skip(f"no agent {program}")
    key = tmp_path_factory.mktemp("cluster") / "key"
    subprocess.run([command, "cluster", "init", key], check=True, stdout=subprocess.DEVNULL)
    name = f"@weft-test-{secrets.token_hex(8)}"
    words = ["--name", name, "--links", "udp", "--user=", "--cluster", "test", "--cluster-key", key,
             "--cluster-port", "0", "--cluster-multicast", "off"]
    with subprocess.Popen([program, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "serving" in process.stdout.readline()
            yield name
        finally:
            process.terminate()
