"""What each of several processes has of a model; with one process nothing changes."""

from __future__ import annotations

import pytest
import torch

from fillerscope.errors import ModelError
from fillerscope.models import tensor_parallel
from fillerscope.models.tensor_parallel import STARTED, added_up, least, loading_options, own_device, own_heads, widened
from support.tiny import tiny_model


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {STARTED: "x", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)


def test_one_process_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a scheduler sets such variables for other reasons."""
    monkeypatch.delenv(STARTED, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "3")
    assert (tensor_parallel.processes(), tensor_parallel.rank()) == (1, 0)
    assert own_heads(6) == slice(0, 6)
    tensor = torch.arange(6.0)
    assert added_up(tensor) is tensor
    assert widened(tensor, 6, 0) is tensor
    assert least(7) == 7
    assert own_device("cuda") == "cuda"
    assert loading_options(tiny_model("llama").config, "tiny") == {}


@pytest.mark.usefixtures("second_of_two")
def test_each_process_has_its_heads_in_order() -> None:
    assert own_heads(6) == slice(3, 6)
    assert (own_device("cuda"), own_device("cuda:0"), own_device("cpu")) == ("cuda:1", "cuda:0", "cpu")
    whole = widened(torch.ones(2, 3, 4), 6, axis=1)
    assert whole.shape == (2, 6, 4)
    assert whole[:, :3].eq(0).all()
    assert whole[:, 3:].eq(1).all()


@pytest.mark.parametrize(("heads", "shared"), [(1, 1), (4, 1)])
@pytest.mark.usefixtures("second_of_two")
def test_heads_that_cannot_be_shared_evenly_are_refused(heads: int, shared: int) -> None:
    config = tiny_model("llama", num_attention_heads=heads, num_key_value_heads=shared).config
    with pytest.raises(ModelError, match=f"tiny has {heads} heads and {shared} of keys, which 2 processes cannot"):
        loading_options(config, "tiny")
