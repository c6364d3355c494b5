"""ARM inside tiny models of every family: who draws what, whatever the batch, and nothing left behind."""

from __future__ import annotations

import copy

import pytest
import torch

from fillerscope.arm.hooks import TokenRange, arm, redistributing
from fillerscope.arm.rng import sequence_seed, step_seeds
from fillerscope.arm.rule import redistribute
from fillerscope.errors import CaptureError, ModelError, StudyError
from fillerscope.models.structure import activation_modules, decoder_of
from fillerscope.study.interventions import Redistribution
from support.grid import some_fast
from support.tiny import tiny_model, tiny_tokenizer

FAMILIES = ("llama", "qwen2", "gemma3_text", "mistral", "phi3", "gpt2", "gemma2", "gpt_neox")
STRONG = {"fraction": 0.25, "layers": [1, 3]}
NEW = 6


@pytest.fixture(scope="module", params=some_fast(FAMILIES, "llama", "gemma3_text", "phi3", "gpt2"))
def any_model(request):
    # Gemma 2's plain attention gives NaN for padding in float64.
    model = tiny_model(request.param)
    return model if request.param == "gemma2" else model.double()


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama").double()


def prompts(count=5, shortest=4):
    random = torch.Generator().manual_seed(count)
    return [torch.randint(3, 400, (shortest + 3 * turn,), generator=random) for turn in range(count)]


def batch_of(texts, side="left"):
    longest = max(map(len, texts))
    ids, mask = torch.zeros(len(texts), longest, dtype=torch.long), torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(longest - len(text), longest) if side == "left" else slice(0, len(text))
        ids[row, place], mask[row, place] = text, 1
    return ids, mask


def generated(model, texts):
    """Greedy answers to several texts at once: tokens and logits."""
    ids, mask = batch_of(texts)
    asked = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "output_logits": True}
    with torch.no_grad():
        found = model.generate(ids, attention_mask=mask, return_dict_in_generate=True, **asked)
    return found.sequences[:, ids.shape[1] :].tolist(), torch.stack(found.logits, 1)


def written(model, texts):
    return generated(model, texts)[0]


def logits(model, ids, **given):
    with torch.no_grad():
        return model(ids, **given).logits


class Heard:
    """What the nonlinearity of each layer gave, after every other hook."""

    def __init__(self, model):
        self.found = {}
        modules = activation_modules(decoder_of(model))
        self.handles = [module.register_forward_hook(self.hook(number)) for number, module in enumerate(modules, 1)]

    def hook(self, number):
        def keep(_module, _inputs, output):
            self.found.setdefault(number, []).append(output.clone())

        return keep

    def __enter__(self):
        return self.found

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()


def hooks_of(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_activations_of_every_family_are_redistributed_and_the_model_restored(any_model):
    ids = prompts()[3][None]
    before = logits(any_model, ids)
    with Heard(any_model) as plain:
        logits(any_model, ids)
    with arm(any_model, layers=[1], seed=3), Heard(any_model) as found:
        changed = logits(any_model, ids)
    key = sequence_seed(3, ids[0].tolist())
    expected = redistribute(plain[1][0].flatten(1), Redistribution(kind="arm"), step_seeds([key], [0], 1))
    assert torch.equal(found[1][0].flatten(1), expected)
    assert not torch.equal(changed, before)
    assert torch.equal(logits(any_model, ids), before)
    assert not hooks_of(any_model)


def test_a_prompt_is_answered_alike_alone_in_a_batch_and_in_any_order(any_model):
    texts = prompts()
    with arm(any_model, **STRONG):
        alone = [generated(any_model, [text]) for text in texts]
        for order in (range(5), [4, 2, 0, 3, 1]):
            tokens, found = generated(any_model, [texts[place] for place in order])
            assert tokens == [alone[place][0][0] for place in order]
            assert torch.allclose(found, torch.cat([alone[place][1] for place in order]), atol=1e-4)
    assert not torch.allclose(generated(any_model, texts[:1])[1], alone[0][1], atol=0.01)


@pytest.mark.slow
def test_a_batch_of_sixteen_and_single_prompts_in_words(model):
    tokenizer = tiny_tokenizer()
    question = "Anna has three apples and buys four more. How many apples does she have now?"
    texts = [torch.tensor(tokenizer(question[: 5 + 4 * turn])["input_ids"]) for turn in range(16)]
    with arm(model, **STRONG):
        assert written(model, texts) == [written(model, [text])[0] for text in texts]


@pytest.mark.parametrize("kind", ["arm", "scatter", "gaussian"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_neither_counted_nor_changed(model, side, kind):
    texts = prompts(3)
    ids, mask = batch_of(texts, side)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    with Heard(model) as plain:
        logits(model, ids, attention_mask=mask, position_ids=places)
    with arm(model, kind=kind, fraction=0.25), Heard(model) as found:
        logits(model, ids, attention_mask=mask, position_ids=places)
    spec = Redistribution(kind=kind, fraction=0.25)
    for row, text in enumerate(texts):
        own = mask[row].bool()
        seeds = step_seeds([sequence_seed(0, text.tolist())], [0], 1)
        expected = redistribute(plain[1][0][row, own].flatten()[None], spec, seeds)
        assert torch.equal(found[1][0][row, own].flatten()[None], expected)
        assert torch.equal(found[1][0][row, ~own], plain[1][0][row, ~own])


def test_a_cache_goes_on_with_the_sequence_that_began_it(any_model):
    text = prompts()[2]
    by_hand = []
    with arm(any_model, **STRONG), torch.no_grad():
        answer = written(any_model, [text])[0]
        output = any_model(text[None], use_cache=True)
        for _ in range(NEW):
            token = output.logits[:, -1].argmax(-1, keepdim=True)
            by_hand.append(int(token))
            output = any_model(token, past_key_values=output.past_key_values, use_cache=True)
    assert by_hand == answer


def test_steps_are_counted_in_own_tokens(model):
    """Of a padded row with a cache: the numbers of each step are those of its key and its own tokens before it."""
    texts = prompts(2)
    with arm(model, fraction=1.0, mode="replace"), Heard(model) as found:
        answers = written(model, texts)
    width = found[1][0].shape[-1]
    for row, text in enumerate(texts):
        key = sequence_seed(0, text.tolist())
        for turn in range(1, NEW):
            values = found[1][turn][row].flatten()
            seeds = step_seeds([key], [len(text) + turn - 1], 1)
            again = redistribute(values[None], Redistribution(kind="arm", fraction=1.0, mode="replace"), seeds)[0]
            ratio = (values / again)[values > 0]  # the same shares of one range: moved twice by the same numbers
            assert len(values) == width
            assert torch.equal(values.sign(), again.sign())
            assert len(ratio)
            assert torch.allclose(ratio.std(), torch.zeros((), dtype=ratio.dtype), atol=1e-9)
    assert len(answers) == 2


def test_two_caches_may_take_turns(model):
    first, second = (text[None] for text in prompts(2))
    token = torch.tensor([[7]])
    with arm(model, **STRONG), torch.no_grad():
        expected = model(token, past_key_values=model(first, use_cache=True).past_key_values).logits
        one, other = (model(ids, use_cache=True).past_key_values for ids in (first, second))
        model(token, past_key_values=other)
        assert torch.equal(model(token, past_key_values=one).logits, expected)


def test_a_cache_from_elsewhere_or_of_other_rows_is_refused(model):
    ids = torch.stack([prompts()[0]] * 2)
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
        with arm(model), pytest.raises(CaptureError, match="not begun inside this arm block"):
            model(ids[:, :1], past_key_values=cache)
        with arm(model):
            cache = model(ids, use_cache=True).past_key_values
            cache.batch_select_indices(torch.tensor([0]))
            with pytest.raises(CaptureError, match="begun with 2 rows was called with 1"):
                model(ids[:1, :1], past_key_values=cache)


def test_seeds_and_sequences_give_other_numbers(model):
    ids = prompts()[1][None]

    def given(seed):
        with arm(model, seed=seed):
            return logits(model, ids)

    assert torch.equal(given(0), given(0))
    assert not torch.equal(given(0), given(1))


def test_layers_draw_their_own_numbers(model):
    text = prompts()[1]
    key = sequence_seed(0, text.tolist())
    with arm(model, layers=[2], fraction=0.5), Heard(model) as found:
        logits(model, text[None])
    with Heard(model) as plain:
        logits(model, text[None])
    assert torch.equal(found[1][0], plain[1][0])
    spec = Redistribution(kind="arm", fraction=0.5)
    expected, wrong = (redistribute(plain[2][0].flatten(1), spec, step_seeds([key], [0], layer)) for layer in (2, 1))
    assert torch.equal(found[2][0].flatten(1), expected)
    assert not torch.equal(expected, wrong)


def test_settings_and_presets(model):
    ids = prompts()[1][None]
    spec = Redistribution(kind="arm", preset="Qwen2.5-Math-7B", layers=[2])
    with arm(model, spec):
        expected = logits(model, ids)
    with arm(model, preset="Qwen2.5-Math-7B", layers=2):
        assert torch.equal(logits(model, ids), expected)
    with arm(model, c=0.10, p1=95, layers=[2]):
        assert torch.equal(logits(model, ids), expected)
    with arm(model, c=0.10, p1=95, layers=[1]):
        assert not torch.equal(logits(model, ids), expected)
    with pytest.raises(StudyError, match="there is no setting 'colour'"), arm(model, colour="red"):
        pass
    with pytest.raises(TypeError, match="not both"), arm(model, spec, c=0.1):
        pass
    assert not hooks_of(model)


def test_blocks_may_be_nested_and_repeated(model):
    ids = prompts()[1][None]
    with arm(model, layers=[1]):
        one = logits(model, ids)
        with arm(model, layers=[2]):
            both = logits(model, ids)
        assert torch.equal(logits(model, ids), one)
    with arm(model, layers=[1, 2]):
        assert torch.equal(logits(model, ids), both)
    assert not hooks_of(model)


def test_an_exception_leaves_nothing_behind(model):
    ids = prompts()[1][None]
    before = logits(model, ids)
    weights = copy.deepcopy(model.state_dict())
    with pytest.raises(IndexError), arm(model, **STRONG):
        logits(model, ids + 100_000)
    with pytest.raises(CaptureError, match="gaps"), arm(model):
        logits(model, ids, attention_mask=torch.tensor([[1, 0] + [1] * (ids.shape[1] - 2)]))
    assert torch.equal(logits(model, ids), before)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert not hooks_of(model)


def test_what_cannot_be_told_apart_is_refused(model):
    ids = prompts()[1][None]
    with arm(model), torch.no_grad():
        with pytest.raises(CaptureError, match="inputs_embeds"):
            model(inputs_embeds=model.get_input_embeddings()(ids))
        with pytest.raises(CaptureError, match="attention mask of shape"):
            model(ids, attention_mask=torch.zeros(1, 1, ids.shape[1], ids.shape[1], dtype=torch.float64))
        with pytest.raises(CaptureError, match="attention mask of shape"):
            model(ids, attention_mask=torch.ones(1, 2, dtype=torch.long))


def test_layers_that_are_not_there_are_refused(model):
    with pytest.raises(ModelError, match="layer 4, but LlamaForCausalLM has 3 layers"), arm(model, layers=[1, 4]):
        pass
    with pytest.raises(ModelError, match="nonlinearity"), arm(tiny_model("gpt_oss")):
        pass
    assert not hooks_of(model)


def test_a_multimodal_model_and_a_bare_decoder_work_too(model):
    text = prompts()[2]
    multimodal = tiny_model("gemma3").double()
    with arm(multimodal, **STRONG):
        alone = generated(multimodal, [text])[1]
        assert torch.allclose(generated(multimodal, [*prompts(3), text])[1][-1:], alone, atol=1e-6)
    assert not torch.allclose(generated(multimodal, [text])[1], alone, atol=0.01)
    decoder = decoder_of(model)
    with arm(model), Heard(model) as found, torch.no_grad():
        model(text[None])
        decoder(text[None])
        decoder(input_ids=text[None])
    assert torch.equal(found[1][0], found[1][1])
    assert torch.equal(found[1][0], found[1][2])
    with arm(decoder), Heard(decoder) as bare, torch.no_grad():
        decoder(text[None])
    assert torch.equal(found[1][0], bare[1][0])


def test_a_row_of_padding_alone_stays_as_it_is(model):
    ids = torch.stack([prompts()[0]] * 2)
    mask = torch.ones_like(ids)
    mask[1] = 0
    with Heard(model) as plain:
        logits(model, ids, attention_mask=mask)
    with arm(model), Heard(model) as found:
        logits(model, ids, attention_mask=mask)
    assert torch.equal(plain[1][0][1], found[1][0][1])
    assert not torch.equal(plain[1][0][0], found[1][0][0])


STRETCHES = (
    TokenRange(0, 0, 4, key=1, step=0),
    TokenRange(0, 4, 8, key=2, step=0),
    TokenRange(0, 9, 10, key=1, step=4),
    TokenRange(1, 3, 7, key=3, step=0),
    TokenRange(1, 11, 12, key=3, step=4),
    TokenRange(1, 8, 8, key=9, step=0),  # no tokens
)


@pytest.mark.parametrize("kind", ["arm", "scatter", "gaussian"])
def test_sequences_named_by_hand(model, kind):
    ids = torch.randint(3, 400, (2, 12), generator=torch.Generator().manual_seed(2))
    spec = Redistribution(kind=kind, fraction=0.3, layers=(1, 2))
    with Heard(model) as plain:
        logits(model, ids)
    with redistributing(model, spec, lambda: STRETCHES), Heard(model) as found:
        logits(model, ids)
    expected = plain[1][0].clone()
    for one in STRETCHES:
        if one.length:
            values = expected[one.row, one.start : one.stop]
            values[:] = redistribute(values.flatten()[None], spec, step_seeds([one.key], [one.step], 1)).view_as(values)
    assert torch.equal(found[1][0], expected)
    assert not torch.equal(found[1][0], plain[1][0])
    assert not hooks_of(model)


def test_sequences_outside_the_call_are_refused_and_none_change_nothing(model):
    ids = prompts()[0][None]
    before = logits(model, ids)
    spec = Redistribution(kind="arm")
    for wrong in (TokenRange(1, 0, 1, 0, 0), TokenRange(0, 0, 5, 0, 0), TokenRange(0, 3, 2, 0, 0)):
        with redistributing(model, spec, lambda wrong=wrong: [wrong]), pytest.raises(CaptureError, match="not within"):
            logits(model, ids)
    with redistributing(model, spec, lambda: ()):
        assert torch.equal(logits(model, ids), before)
