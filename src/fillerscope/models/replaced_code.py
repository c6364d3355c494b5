"""Whether a model that is known by its files computes what they say: its code may have been changed in this process."""

from __future__ import annotations

from transformers import PreTrainedModel

from fillerscope.errors import ModelError
from fillerscope.models.library_code import UnknownCodeError, class_name, refuse_global_hooks, refuse_own
from fillerscope.models.named_code import refuse_own_entries
from fillerscope.prompts.tokenizer import Tokenizer


def refuse_replaced(model: PreTrainedModel, tokenizer: Tokenizer, name: str) -> None:
    """Raise where a model that is known by its files would compute something else in this process."""
    what = "a hook or the forward of a module"
    try:
        for module in model.modules():  # libraries have some of their own, where processes share a model
            hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
            refuse_own((*hooks, vars(module).get("forward")))
        refuse_global_hooks()
        what = "a function that it finds by name, such as that of attention,"
        refuse_own_entries(model)
        for kind in dict.fromkeys(map(type, (*model.modules(), tokenizer))):
            what = kind.__name__
            class_name(kind)
    except UnknownCodeError:
        raise ModelError(
            f"{name}: {what} has been changed in this process, so that the model does not compute what its files say; "
            "measure it in a new process, or give the model itself instead of its name"
        ) from None
