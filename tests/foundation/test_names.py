"""Names that a newcomer can find: one file of a name, and files of a size that can be read."""

from collections import Counter
from pathlib import Path

import ustad

SOURCE = Path(ustad.__file__).parent


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_no_two_files_have_one_name():
    count = Counter(path.name for path in modules() if path.name != "__init__.py")
    assert [name for name, times in count.items() if times > 1] == []
