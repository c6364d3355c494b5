"""GGUF into safetensors: the same model, the same tokenizer, once."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fillerscope.errors import ModelError
from fillerscope.models import gguf as conversion
from fillerscope.models.digests import file_sums
from fillerscope.models.gguf import VERSION, _save_tokenizer, read_record
from fillerscope.models.loading import load_folder, load_model
from fillerscope.models.resolve import resolve
from support.progress import Told
from support.tiny import tiny_tokenizer

WriteGguf = Callable[..., Path]


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.arange(3, 40)[None]).logits


def test_the_converted_model_is_the_one_that_was_written(write_gguf: WriteGguf, llama: Any) -> None:
    loaded = load_model(str(write_gguf()))
    assert torch.allclose(logits(loaded.model), logits(llama), atol=1e-5)
    assert (loaded.label, loaded.layers, loaded.heads, loaded.dtype) == ("tiny", 3, 4, "float32")


def test_the_tokenizer_and_its_chat_template_survive(write_gguf: WriteGguf) -> None:
    loaded, original = load_model(str(write_gguf())), tiny_tokenizer()
    turns = [{"role": "user", "content": "What is 12 + 30?\n\nÄ /  /"}]
    assert loaded.has_chat_template
    for text in (original.apply_chat_template(turns, tokenize=False), "a  b\n\n 日本"):
        assert loaded.tokenizer(text)["input_ids"] == original(text)["input_ids"]
        assert loaded.tokenizer.decode(loaded.tokenizer(text)["input_ids"]) == text


class OfAFamily(PreTrainedTokenizerFast):
    """As versions of transformers make of what is saved, where they know the family: another one."""


def test_a_tokenizer_is_read_as_it_was_saved(tmp_path: Path) -> None:
    _save_tokenizer(OfAFamily(tokenizer_object=tiny_tokenizer().backend_tokenizer), tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == "TokenizersBackend"
    text = "one / two"
    assert AutoTokenizer.from_pretrained(tmp_path).encode(text) == tiny_tokenizer().encode(text)


@pytest.mark.parametrize("wanted", [True, False])
def test_bos_is_added_where_the_file_asks_for_it(write_gguf: WriteGguf, wanted: bool) -> None:
    tokenizer = load_model(str(write_gguf(add_bos=wanted))).tokenizer
    assert (tokenizer("apples")["input_ids"][0] == tokenizer.bos_token_id) is wanted
    assert tokenizer("apples", add_special_tokens=False)["input_ids"][0] != tokenizer.bos_token_id


def test_a_file_is_converted_once_and_never_touched(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    first = resolve(str(path))
    monkeypatch.setattr("fillerscope.models.resolve.convert", lambda *_: pytest.fail("converted again"))
    assert resolve(str(path)) == first
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    record = json.loads((first.path / "fillerscope.json").read_text())
    expected = {
        "source": "tiny", "gguf_sha256": before, "digest": first.digest, "files": file_sums(first.path),
        "version": VERSION,
    }  # fmt: skip
    assert record == expected


def test_a_folder_that_is_exchanged_while_it_is_filled_is_not_followed(
    write_gguf: WriteGguf, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outside := tmp_path / "outside").mkdir()

    def exchange(path: Path, *_: object) -> None:
        (draft,) = (cache / "models").glob(".*converting")
        draft.rename(tmp_path / "away")
        draft.symlink_to(outside)
        (path / "config.json").write_text("{}")

    monkeypatch.setattr(conversion, "_convert_into", exchange)
    with pytest.raises(ModelError, match="it was replaced while it was written; set FILLERSCOPE_CACHE"):
        resolve(str(write_gguf()))
    assert not list(outside.iterdir())
    assert not list((cache / "models").glob("tiny*"))


def test_two_at_once_convert_it_once(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    path, converted, waiting = str(write_gguf()), [], threading.Event()

    def slow(*arguments: Any) -> None:
        """Ends only when the other one has come."""
        converted.append(arguments)
        assert waiting.wait(60)
        conversion.convert(*arguments)

    def watch(stage: str, *_: object) -> None:
        if stage.startswith("waiting for another process"):
            waiting.set()

    monkeypatch.setattr("fillerscope.models.resolve.convert", slow)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(resolve, [path, path], [Told(watch), Told(watch)])
    assert first == second
    assert len(converted) == 1


def test_a_changed_file_is_another_model(write_gguf: WriteGguf) -> None:
    plain, with_bos = write_gguf("plain.gguf"), write_gguf("bos.gguf", add_bos=True)
    first = resolve(str(plain))
    shutil.copyfile(with_bos, plain)
    assert resolve(str(plain)).digest != first.digest


def test_a_damaged_folder_in_the_cache_is_made_again(write_gguf: WriteGguf) -> None:
    path = str(write_gguf())
    first = resolve(path)
    weights = first.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert resolve(path) == first
    assert load_folder(first).layers == 3


def test_files_that_lie_next_to_the_gguf_do_not_matter(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    first = resolve(str(path))
    shutil.rmtree(first.path)
    (path.parent / "config.json").write_text('{"model_type": "bert"}')
    (path.parent / "tokenizer_config.json").write_text('{"chat_template": "wrong", "bos_token": "x"}')
    assert resolve(str(path)).digest == first.digest


def test_progress_is_told_to_us_and_not_to_the_terminal(
    write_gguf: WriteGguf, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    path = str(write_gguf())
    capfd.readouterr()
    resolve(path, Told(lambda *step: seen.append(step)))
    assert capfd.readouterr() == ("", "")
    unpacked = [(done, total) for stage, done, total in seen if stage.startswith("unpacking")]
    assert unpacked[-1][0] == unpacked[-1][1]
    assert any(stage.startswith("writing") for stage, *_ in seen)


def test_a_conversion_that_fails_leaves_nothing(
    write_gguf: WriteGguf, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "_compare_logits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resolve(str(write_gguf()))
    assert list((cache / "models").iterdir()) == []


def test_a_copy_that_differs_is_refused(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    original = conversion._logits
    calls = iter([0.0, 0.01])
    monkeypatch.setattr(conversion, "_logits", lambda model: original(model) + next(calls))
    with pytest.raises(ModelError, match=r"changed the model: logits differ by up to 1.0e-02"):
        resolve(str(write_gguf()))


def test_a_copy_with_another_tokenizer_is_refused(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tiny_tokenizer()
    other.add_tokens(["he he"])
    read = conversion.read_tokenizer

    def spoiled(folder: Path, gguf: Path) -> Any:
        tokenizer = read(folder, gguf)
        tokenizer.save_pretrained = other.save_pretrained
        return tokenizer

    monkeypatch.setattr(conversion, "read_tokenizer", spoiled)
    with pytest.raises(ModelError, match=r"changed its tokenizer: ' / / / //// .* he he' was"):
        resolve(str(write_gguf()))


def test_a_file_with_a_missing_tensor_is_refused(write_gguf: WriteGguf) -> None:
    path = write_gguf(leave_out=("blk.1.ffn_up.weight",))
    with pytest.raises(ModelError, match=r"lacks 1 of its weights, model\.layers\.1\.mlp\.up_proj\.weight"):
        resolve(str(path))


def test_a_file_with_more_layers_than_it_says_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(ModelError, match=r"llama\.block_count is 2, and it has tensors of 3 blocks"):
        resolve(str(write_gguf(blocks=2)))


def test_factors_of_rotary_frequencies_are_refused_unless_they_change_nothing(write_gguf: WriteGguf) -> None:
    with pytest.raises(ModelError, match=r"scaled\.gguf scales its rotary frequencies \(rope_freqs\.weight\)"):
        resolve(str(write_gguf("scaled.gguf", frequencies=[1.0] * 7 + [8.0])))
    assert resolve(str(write_gguf("plain.gguf", frequencies=[1.0] * 8))).path.is_dir()


def test_a_truncated_file_is_refused(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match=r"tiny\.gguf is no sound GGUF file: .*incomplete"):
        resolve(str(path))


def test_a_file_with_another_magic_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "web-page.gguf"
    path.write_text("<html>not found</html>")
    with pytest.raises(ModelError, match=r"not a GGUF file: it begins with b'<htm'"):
        resolve(str(path))


def test_packages_that_are_needed_are_named(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.models.gguf_reader.find_spec", lambda name: None if name == "accelerate" else 1)
    with pytest.raises(ModelError, match=r"needs the package accelerate; run `pip install accelerate`"):
        resolve(str(write_gguf()))


def test_there_is_no_record_without_a_finished_conversion(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    (tmp_path / "fillerscope.json").write_text("{")
    assert read_record(tmp_path) is None
