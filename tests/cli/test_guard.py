"""The last guard of every command: one sentence that says what to do, and the traceback for who asks for it."""

import errno

import pytest
import torch
from safetensors import SafetensorError

from probssl.runs import listing
from tests.cli.shell import probssl, refusal


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "out of memory: try a smaller --batch-size or --dim"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory: try a smaller"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            "out of memory: try",
        ),
        (SafetensorError("Error while\nserializing"), "a safetensors file cannot be read or written (Error while ser"),
        (
            OSError(errno.ENOSPC, "No space left on device", "here/log.jsonl"),
            "the disk that holds here/log.jsonl is full: free",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "here"), "here cannot be read or written (Permission"),
    ],
)
def test_errors_that_nobody_made_on_purpose_are_one_sentence(error, said, scratch, monkeypatch):
    def fail(folder):
        raise error

    monkeypatch.setattr(listing, "lines", fail)
    assert f"error: {said}" in refusal("runs", scratch)
    shown = probssl("runs", scratch, "--debug")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("Traceback (most recent call last)")
    assert type(error).__name__ in shown.stderr
    assert f"error: {said}" in shown.stderr.splitlines()[-1]


def test_real_sizes_that_no_memory_holds(table, scratch):
    assert "error: " in refusal("fit", table, "--dim", 10**12, "--out", "run", "-q")
    assert "error: " in refusal("fit", table, "--set", "encoder.hidden=[4611686018427387904]", "--out", "run", "-q")


def test_a_mistake_of_ours_is_not_hidden(scratch, monkeypatch):
    def fail(folder):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(listing, "lines", fail)
    with pytest.raises(ZeroDivisionError):
        probssl("runs", scratch)


def test_errors_made_on_purpose_show_their_traceback_too(scratch):
    assert "does not exist" in refusal("doctor", "nope")
    shown = probssl("doctor", "nope", "--debug").stderr
    assert "InputError" in shown
    assert shown.splitlines()[-1].startswith("error: nope does not exist")
