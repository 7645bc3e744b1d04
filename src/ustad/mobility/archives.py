"""Archives as they are downloaded: a zipped Takeout is read as the folder it holds.

In: sources, some of which are `.zip`. Out: the same with a temporary folder in place of each archive. How much is
unpacked is bounded, by what an export compresses to and in all, so that a small file cannot fill the disk.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ustad.mobility.exports import kind_of, may_be_export
from ustad.mobility.formats import format_of
from ustad.mobility.reading import Reading
from ustad.tables import DataError

LARGEST = 8 << 30  # bytes of an archive, unpacked
RATIO, SMALL = 200, 64 << 20  # text of fixes is packed to no less than one in so many; small archives may be
MOST_FILES = 100_000
BLOCK = 1 << 20


@contextmanager
def unpack_archives(sources: Sequence[Path | str], reading: Reading) -> Iterator[list[Path | str]]:
    """The sources with folders in place of archives, as long as the context lasts."""
    if not any(is_archive(source) for source in sources):
        yield list(sources)
        return
    with tempfile.TemporaryDirectory(prefix="ustad-") as name:
        folders = {str(source): Path(name) / str(i) for i, source in enumerate(sources) if is_archive(source)}
        try:
            yield [_unpack(Path(s), folders[str(s)], reading) if str(s) in folders else s for s in sources]
        except DataError as error:
            text = str(error)
            for source, folder in folders.items():
                text = text.replace(str(folder), source)
            raise DataError(text) from error


def is_archive(source: Path | str) -> bool:
    """Whether a source is a file that has to be unpacked."""
    return str(source).lower().endswith(".zip") and Path(source).is_file()


def _unpack(path: Path, target: Path, reading: Reading) -> Path:
    """The files of an archive that can be read, under a folder with the name of whose it is."""
    root = target / _name_owner(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir() and _is_wanted(Path(m.filename))]
            if len(members) > MOST_FILES:
                raise DataError(f"{path}: holds {len(members):,} files, more than {MOST_FILES:,}; unpack it yourself")
            _write_members(archive, members, root, _limit(path))
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: cannot be unpacked ({error})") from error
    files = [file for file in root.rglob("*") if file.is_file()]
    exports = {file for file in files if kind_of(file) is not None}
    for file in files if exports else ():
        if file not in exports:  # settings and other products beside the export
            file.unlink()
    if not files:
        raise DataError(f"{path}: the archive holds no file that can be read")
    reading.say(f"{path.name}: {len(exports or files):,} files were read from the archive")
    return root


def _is_wanted(path: Path) -> bool:
    hidden = path.name.startswith(".") or "__MACOSX" in path.parts
    return not hidden and (format_of(path) is not None or may_be_export(path))


def _name_owner(path: Path) -> str:
    """Whose archive it is: its name, or that of its folder where Google named it (`takeout-20240501T….zip`)."""
    folder = path.resolve().parent.name
    return folder if path.stem.lower().startswith("takeout") and folder else path.stem


def _limit(path: Path) -> int:
    return min(LARGEST, RATIO * path.stat().st_size + SMALL)


def _write_members(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], root: Path, limit: int) -> None:
    """Unpack block by block: what a member says of its own size is not believed."""
    left = limit
    for member in members:
        parts = [part for part in PurePosixPath(member.filename.replace("\\", "/")).parts if part not in ("..", "/")]
        target = root.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, target.open("wb") as file:
            while block := source.read(BLOCK):
                left -= len(block)
                if left < 0:
                    size = f"{limit / 2**30:.1f} GB"
                    raise DataError(f"{archive.filename}: unpacks to more than {size}; unpack it yourself and look")
                file.write(block)
