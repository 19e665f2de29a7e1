"""What the warm process does before it forks."""

import sys

import pytest

from rapid.stages import rehearsal


def test_code_is_read_before_it_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapid.training.trl", None)  # to import it is an error

    def read(*roots):
        raise EOFError

    monkeypatch.setattr(rehearsal, "files_behind", read)
    with pytest.raises(EOFError):
        rehearsal.rehearse()
