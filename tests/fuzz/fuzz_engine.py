"""Cases from a corpus by mutation of bytes, each run under a limit of time and memory.

In: targets with their corpus files, a number of cases and a seed. Out: findings, each with the bytes that led to it.
The same seed gives the same cases.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fuzz_targets import CORPUS, REFUSED, TARGETS, Target

SECONDS = 10.0  # a case that takes longer hangs
MEMORY = 3 << 30  # bytes beyond what the process has at the beginning
LARGEST = 200_000  # bytes of a case
#: Of a thousand cases, those of each target: what is read in little time is read more often.
SHARES = {
    "live": 380, "tracker": 300, "rules": 120, "schema": 50, "config": 40, "data": 40, "scores": 20, "pois": 15,
    "stays": 12, "fixes": 8, "http": 8, "model": 3, "model-best": 2, "model-paper": 2,
}  # fmt: skip
#: What readers trip over: numbers at the edge, other kinds of values, structure out of place.
TOKENS = [
    b"NaN", b"nan", b"inf", b"-inf", b"Infinity", b"null", b"true", b"false", b"None", b"0", b"-0", b"-1", b"1e999",
    b"1e308", b"9999999999999999999999", b"9223372036854775807", b"-9223372036854775808", b"2147483648", b"0.1e-400",
    b'""', b"''", b"[]", b"{}", b"[[", b"{{", b'{"a":', b"]", b"}", b",", b";", b"\t", b"\n", b"\r", b"\r\n", b"\0",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xf0\x9f\x92\xa9", b"\\ud800", b"\\u0000", b'"', b"'", b"<", b"</",
    b"&#0;",
    b"&lol;", b"<!DOCTYPE x [<!ENTITY lol 'lol'>]>", b"<![CDATA[", b"!!python/object/apply:os.system ['true']",
    b"&a [*a]", b"*a", b"<<: *a", b"%", b"..", b"../../../etc/passwd", b"$(true)", b"; DROP TABLE events", b"__proto__",
    b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59Z", b"1969-12-31T23:59:59Z", b"2024-02-30T00:00:00Z", b"24:00:00",
    b"2024-03-31T02:30:00", b"+99:99", b"-91", b"91", b"181", b"1e10", b"agent_id", b"time", b"lat", b"lon",
]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    target: str
    what: str  # the error in one line, and where it was raised
    content: bytes
    file: str


@dataclass
class Figures:
    cases: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)  # not refused
    findings: dict[str, Finding] = field(default_factory=dict)  # one for each place it was raised at


class TimeLimitError(Exception):
    """A case took too long."""


def corpus_of(target: str) -> list[Path]:
    return sorted(p for p in (CORPUS / target).iterdir() if p.is_file())


def mutate(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """One to eight changes; of what is packed, inside it as often as outside."""
    if content[:2] == b"\x1f\x8b" and chance.random() < 0.5:
        with contextlib.suppress(OSError, EOFError):
            return gzip.compress(mutate(gzip.decompress(content), others, chance), 1, mtime=0)
    changed = bytearray(content)
    for _ in range(1 << chance.randrange(4)):
        _change(changed, others, chance)
    return bytes(changed[:LARGEST])


def _change(content: bytearray, others: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(content) + 1)
    end = min(len(content), at + chance.choice((1, 1, 2, 4, 8, 30, 200)))
    how = chance.randrange(9)
    if how == 0 and at < len(content):
        content[at] ^= 1 << chance.randrange(8)
    elif how == 1 and at < len(content):
        content[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    elif how == 2:
        del content[at:end]
    elif how == 3:
        content[at:at] = content[at:end] * chance.choice((1, 1, 2, 50))
    elif how == 4:
        content[at:at] = chance.choice(TOKENS)
    elif how == 5:
        content[at:end] = chance.choice(TOKENS)
    elif how == 6:
        other = chance.choice(others)
        begin = chance.randrange(len(other) + 1)
        content[at:at] = other[begin : begin + chance.choice((4, 40, 400))]
    elif how == 7 and chance.random() < 0.3:
        del content[at:]
    else:
        _change_number(content, at, chance)


def _change_number(content: bytearray, at: int, chance: random.Random) -> None:
    """The number in text at or after a position becomes another one."""
    digits = b"0123456789.-+eE"
    begin = next((i for i in range(at, min(at + 200, len(content))) if content[i] in digits), None)
    if begin is None:
        return
    end = begin
    while end < len(content) and content[end] in digits:
        end += 1
    content[begin:end] = chance.choice([*TOKENS[:19], str(chance.randrange(-(10**6), 10**6)).encode()])


@contextlib.contextmanager
def limits(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimitError(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """What the process may take beyond what it has now; for processes that do nothing but fuzz."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def run_case(target: Target, path: Path, seconds: float = SECONDS) -> tuple[bool, str | None]:
    """Whether the file was read, and what went wrong if something did."""
    try:
        with limits(seconds):
            target.run(path)
        return True, None
    except REFUSED:
        return False, None
    except (Exception, TimeLimitError) as error:
        return False, describe(error)


def describe(error: BaseException) -> str:
    """The error and the innermost place of our own that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/ustad/" in f.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:120]}"


def warm_up(target: Target, files: list[Path], place: Path) -> None:
    """Read the corpus once without a limit of time: what is compiled when it is first used is no hang."""
    place.mkdir()
    for file in files:
        shutil.copy(file, place / file.name)
        with contextlib.suppress(*REFUSED):
            target.run(place / file.name)


def fuzz(names: list[str], cases: int, seed: int, stop_after: float = float("inf")) -> Figures:
    """So many cases, dealt out to the targets by their shares."""
    figures, ends = Figures(), time.monotonic() + stop_after
    chance = random.Random(seed)
    files = {name: corpus_of(name) for name in names}
    contents = {name: [p.read_bytes() for p in paths] for name, paths in files.items()}
    quick = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk in memory, where there is one
    shares = [SHARES[name] for name in names]
    with tempfile.TemporaryDirectory(prefix="ustad-fuzz-", dir=quick) as place:
        for name in names:
            warm_up(TARGETS[name], files[name], Path(place) / name)
        for _ in range(cases):
            if time.monotonic() > ends:
                break
            (name,) = chance.choices(names, shares)
            which = chance.randrange(len(files[name]))
            content = mutate(contents[name][which], contents[name], chance)
            path = Path(place) / name / files[name][which].name
            path.write_bytes(content)
            was_read, wrong = run_case(TARGETS[name], path)
            figures.cases[name] += 1
            figures.read[name] += was_read
            if wrong is not None:
                key = f"{name} {wrong.partition(': ')[0]}"
                figures.findings.setdefault(key, Finding(name, wrong, content, path.name))
    return figures


def name_of(finding: Finding) -> str:
    return f"{finding.target}-{hashlib.sha256(finding.content).hexdigest()[:12]}-{finding.file}"


def split_name(case: str) -> tuple[str, str]:
    """The target and the file's name of what `name_of` called so."""
    target = max((name for name in TARGETS if case.startswith(f"{name}-")), key=len)
    return target, case.removeprefix(f"{target}-").partition("-")[2]
