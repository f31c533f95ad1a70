"""The names that somebody may have meant."""

from __future__ import annotations

from pathlib import Path

from throughline import spelling


def test_the_most_similar_names_come_first_and_equal_ones_in_their_order() -> None:
    names = ["run1", "run2", "run3", "run4", "other", "RUN5"]
    assert spelling.similar("run9", names) == ["run1", "run2", "run3"]
    assert spelling.similar("run5", names)[0] == "RUN5"
    assert spelling.similar("zzz", names) == []


def test_a_question_names_one_two_or_three() -> None:
    assert spelling.meant("run9", ["run1", "run2", "run3"]) == "did you mean run1, run2 or run3?"
    assert spelling.meant("zzz", ["corpus"]) == ""


def test_files_beside_a_path_are_found(tmp_path: Path) -> None:
    (tmp_path / "wiki.xml.bz2").touch()
    assert spelling.beside(tmp_path / "wki.xml.bz2") == f"did you mean {tmp_path / 'wiki.xml.bz2'}? "
    assert spelling.beside(tmp_path / "nothing" / "wiki.xml.bz2", "correct it; ") == "correct it; "
