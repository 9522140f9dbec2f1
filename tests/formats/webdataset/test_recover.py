"""Members found again in a damaged tar: what that costs."""

from __future__ import annotations

import tarfile

import pytest

from cost import costs_at_most
from lading._core.formats.base import ShardFile, map_file
from lading._core.formats.webdataset.recover import find_members
from lading._core.storage.memory import MemoryStore
from tars import tar_of


def members_in(body: bytes) -> int:
    mapped = map_file(ShardFile(MemoryStore({"a.tar": body}), "a.tar"))
    return sum(map(len, find_members(mapped, "a.tar").parts))


MEMBER = tar_of(("b.bin", b"x" * 500))[:1024]
HURT = MEMBER + b"?" * 512 + b"x" * 500 + bytes(12)


@pytest.mark.soak
def test_what_a_damage_costs_does_not_grow_with_what_is_behind_it() -> None:
    far, near = HURT * 300 + MEMBER * 8000, MEMBER * 8000 + HURT * 300 + MEMBER
    assert (members_in(far), members_in(near)) == (8300, 8301)
    assert costs_at_most(2, lambda: members_in(far), lambda: members_in(near))


@pytest.mark.soak
def test_what_a_damage_costs_does_not_grow_with_the_damages_before_it() -> None:
    many, few = HURT * 1500 + MEMBER, HURT * 150 + MEMBER
    assert (members_in(many), members_in(few)) == (1501, 151)
    assert costs_at_most(20, lambda: members_in(many), lambda: members_in(few))


@pytest.mark.soak
def test_it_is_not_walked_from_headers_that_lie_over_those_of_members() -> None:
    # A payload ends in the first 350 bytes of a header that the 162 bytes of the next one make whole.
    def header(name: str, size: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.USTAR_FORMAT)

    members = [header(f"k{number:04}.bin", 1024) for number in range(1000)]
    over = b""
    for head, following in zip(members, [*members[1:], bytes(512)], strict=True):
        torn = bytearray(header("z.x", 0)[:350] + following[:162])
        torn[148:156] = b" " * 8
        torn[148:156] = b"%06o\0 " % sum(torn)
        over += head + b"y" * 674 + torn[:350]
    plain = b"".join(head + b"y" * 1024 for head in members)
    assert members_in(over) == members_in(plain) == 1000
    assert costs_at_most(4, lambda: members_in(over), lambda: members_in(plain))
