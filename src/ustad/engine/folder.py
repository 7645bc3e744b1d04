"""A folder on any file system that pyarrow knows: local, S3 and what speaks like it, GCS, HDFS.

Files appear whole or not at all: they are written under another name and moved. A `Place` can be sent to workers.
"""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from ustad.files import repeating_columns
from ustad.tables import DataError, first_line

_URI = re.compile(r"^([a-z][a-z0-9+.-]+):/+(.*)$")


def is_uri(path: Path | str) -> bool:
    """Whether this names a file system, also where `s3://bucket` has been through `Path` and lost a slash."""
    return _URI.match(str(path)) is not None


def _uri(path: Path | str) -> str:
    match = _URI.match(str(path))
    if match is None:
        return str(path)
    scheme, rest = match.groups()
    return f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


@dataclass(frozen=True)
class Place:
    """A folder `root` of a file system."""

    filesystem: pa_fs.FileSystem
    root: str

    @classmethod
    def of(cls, where: Place | Path | str) -> Place:
        """From a local path or a URI such as s3://bucket/folder?region=eu-west-1."""
        if isinstance(where, Place):
            return where
        if not is_uri(where):
            return cls(pa_fs.LocalFileSystem(), str(Path(where).resolve()))
        try:
            filesystem, root = pa_fs.FileSystem.from_uri(_uri(where))
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise DataError(f"{_uri(where)}: no file system for this address ({first_line(error)})") from error
        return cls(filesystem, root.rstrip("/"))

    def __str__(self) -> str:
        return self.root if self.local else f"{self.filesystem.type_name}://{self.root}"

    def __hash__(self) -> int:
        return hash((self.filesystem.type_name, self.root))

    def __truediv__(self, name: str) -> Place:
        return Place(self.filesystem, f"{self.root}/{name}")

    @property
    def local(self) -> bool:
        return isinstance(self.filesystem, pa_fs.LocalFileSystem)

    @property
    def path(self) -> Path:
        """The local path; only where `local`."""
        return Path(self.root)

    @property
    def name(self) -> str:
        return self.root.rpartition("/")[2]

    # ------------------------------------------------------------------------------------------ looking
    def exists(self, name: str = "") -> bool:
        return self._info(name).type != pa_fs.FileType.NotFound

    def is_folder(self, name: str = "") -> bool:
        return self._info(name).type == pa_fs.FileType.Directory

    def files(self, name: str = "", suffix: str = "") -> list[pa_fs.FileInfo]:
        """Files directly in a folder in the order of their names; none where there is no folder."""
        selector = pa_fs.FileSelector(self._at(name), allow_not_found=True)
        infos = [i for i in self.filesystem.get_file_info(selector) if i.type == pa_fs.FileType.File]
        own_files = [i for i in infos if i.base_name.endswith(suffix) and not i.base_name.startswith(".")]
        return sorted(own_files, key=lambda i: i.base_name)

    def names(self, name: str = "", suffix: str = "") -> set[str]:
        return {info.base_name for info in self.files(name, suffix)}

    # ------------------------------------------------------------------------------------------ reading
    def read_bytes(self, name: str) -> bytes:
        try:
            with self.filesystem.open_input_stream(self._at(name)) as stream:
                return stream.read()
        except FileNotFoundError as error:
            raise DataError(f"{self / name}: no such file") from error

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_bytes(name))
        except ValueError as error:
            raise DataError(f"{self / name}: not valid JSON; the file is damaged, make it again") from error

    def read_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One Parquet file, or all of a folder in the order of their names."""
        if self.is_folder(name):
            parts = [self.read_table(f"{name}/{i.base_name}", columns) for i in self.files(name, ".parquet")]
            if not parts:
                raise DataError(f"{self / name}: the folder holds no .parquet files")
            return pa.concat_tables(parts, promote_options="permissive")
        try:
            return pq.ParquetFile(self._at(name), filesystem=self.filesystem).read(columns=columns)
        except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
            raise DataError(f"{self / name}: cannot be read ({first_line(error)})") from error

    def read_arrow(self, name: str) -> pa.Table:
        """One file of `write_arrow`."""
        try:
            with self.filesystem.open_input_file(self._at(name)) as file, pa.ipc.open_file(file) as reader:
                return reader.read_all()
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{self / name}: cannot be read ({first_line(error)})") from error

    # ------------------------------------------------------------------------------------------ writing
    def write_bytes(self, content: bytes, name: str) -> None:
        temporary = self._temporary(name)
        with self.filesystem.open_output_stream(temporary) as stream:
            stream.write(content)
        self.filesystem.move(temporary, self._at(name))

    def write_json(self, content: Any, name: str) -> None:
        self.write_bytes((json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode(), name)

    def write_table(self, table: pa.Table, name: str) -> None:
        temporary = self._temporary(name)
        dictionary = repeating_columns(table.schema)
        pq.write_table(table, temporary, filesystem=self.filesystem, compression="zstd", use_dictionary=dictionary)
        self.filesystem.move(temporary, self._at(name))

    def write_arrow(self, table: pa.Table, name: str) -> None:
        """A table that is read once and deleted: it takes less processor time than Parquet, and more bytes."""
        temporary = self._temporary(name)
        options = pa.ipc.IpcWriteOptions(compression="lz4" if self.local else "zstd")
        with (
            self.filesystem.open_output_stream(temporary) as stream,
            pa.ipc.new_file(stream, table.schema, options=options) as writer,
        ):
            writer.write_table(table)
        self.filesystem.move(temporary, self._at(name))

    def take_in(self, folder: Path) -> None:
        """All files of a local folder, under their names within it."""
        for file in sorted(f for f in folder.rglob("*") if f.is_file()):
            self.write_bytes(file.read_bytes(), file.relative_to(folder).as_posix())

    def bring(self, folder: Path, names: Iterable[str]) -> None:
        """Copies of some files in a local folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_bytes(self.read_bytes(name))

    def remove(self, name: str = "") -> None:
        """A file or a folder, where it is there."""
        kind = self._info(name).type
        if kind == pa_fs.FileType.Directory:
            self.filesystem.delete_dir(self._at(name))
        elif kind == pa_fs.FileType.File:
            self.filesystem.delete_file(self._at(name))

    def remove_table(self, name: str) -> None:
        """`NAME.parquet` and the folder `NAME/` of parts; a folder that holds anything else is not touched."""
        self.remove(f"{name}.parquet")
        if not self.is_folder(name):
            return
        infos = self.filesystem.get_file_info(pa_fs.FileSelector(self._at(name)))
        if not all(info.base_name.endswith((".parquet", ".part")) for info in infos):
            raise DataError(f"{self / name}: holds more than a table; choose another --out")
        self.remove(name)

    def replace_tables(self, names: Sequence[str], work: Place, last: str, content: Any) -> None:
        """Tables of a folder within this place (`NAME.parquet` or parts in `NAME/`) in the place of those of these
        names; a part is then called `part-…`. The file `last`, which says that all is there, goes first and comes
        last."""
        self.remove(last)
        for name in names:
            self.remove_table(name)
            if work.exists(f"{name}.parquet"):
                self.filesystem.move(work._at(f"{name}.parquet"), self._at(f"{name}.parquet"))
            for file in sorted(work.names(name, ".parquet")):
                self.filesystem.create_dir(self._at(name), recursive=True)
                self.filesystem.move(work._at(f"{name}/{file}"), self._at(f"{name}/part-{file.removeprefix('part-')}"))
        self.write_json(content, last)

    # ------------------------------------------------------------------------------------------ private
    def _at(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def _info(self, name: str) -> pa_fs.FileInfo:
        return self.filesystem.get_file_info(self._at(name))

    def _temporary(self, name: str) -> str:
        """A name beside the file that nobody else uses or reads."""
        folder, _, last = self._at(name).rpartition("/")
        self.filesystem.create_dir(folder, recursive=True)
        return f"{folder}/.{last}.{uuid.uuid4().hex[:12]}.part"


@contextmanager
def on_this_machine(where: Place | Path | str, last: str) -> Iterator[Path]:
    """The folder itself where it is local; else a copy of it, whose new and changed files go back at the end.

    The file `last`, which says that all is there, goes first and comes back last.
    """
    place = Place.of(where)
    if place.local:
        yield place.path
        return
    with tempfile.TemporaryDirectory(prefix="ustad-") as name:
        folder = Path(name)
        for info in place.filesystem.get_file_info(pa_fs.FileSelector(place.root, True, recursive=True)):
            file = info.path.removeprefix(place.root).lstrip("/")
            if info.type == pa_fs.FileType.File and not any(part.startswith(".") for part in file.split("/")):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                place.bring(folder, [file])
        before = _stamps(folder)
        yield folder
        after = _stamps(folder)
        if after == before:
            return
        place.remove(last)
        for file in before.keys() - after.keys():
            place.remove(file)
        for file in sorted((f for f in after if after[f] != before.get(f)), key=lambda f: f == last):
            place.write_bytes((folder / file).read_bytes(), file)
        if last in after and after[last] == before.get(last):
            place.write_bytes((folder / last).read_bytes(), last)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file, by its name within the folder."""
    files = ((file, file.stat()) for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): (state.st_size, state.st_mtime_ns) for file, state in files}
