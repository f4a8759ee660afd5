"""Tests of lists of hosts."""

from __future__ import annotations

import pytest

from weft import host_lists


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08,10-11]-ib,x", ["n08-ib", "n10-ib", "n11-ib", "x"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("r[1-2]n[7,9]", ["r1n7", "r1n9", "r2n7", "r2n9"]),
        (" a , b ", ["a", "b"]),
    ],
)
def test_hosts(text: str, expected: list[str]) -> None:
    assert host_lists.hosts(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a,,b", "n[", "n]", "n[]", "n[a-b]", "n[3-1]", "n[1-", "n[1-99999999999]", "[1-1000][1-1000]", "a b"]
)
def test_other_texts_are_no_hosts(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|more than|invalid literal"):
        host_lists.hosts(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        ("a,b,c:2,d:3", [("a", 2), ("b", 2), ("c", 2), ("d", 3)]),
        ("n[1-2],10.0.0.7:5", [("n1", 5), ("n2", 5), ("10.0.0.7", 5)]),
        ("[::1]:5, [fe80::2]:6", [("::1", 5), ("fe80::2", 6)]),
        ("[::1],[::2]:5", [("::1", 5), ("::2", 5)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert host_lists.addresses(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "a:1,b", ":1", "a:x", "a:0", "a:65536", "::1:5", "a:1:2", "n[1-:5", "a,,b:1"]
)
def test_other_texts_are_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|is neither|invalid literal"):
        host_lists.addresses(text)
