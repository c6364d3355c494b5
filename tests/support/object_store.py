"""An S3 server on this machine, and what lies in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server. `environment` is what a process needs to reach it."""

    name: str
    server: str

    @property
    def environment(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": self.server}

    @cached_property
    def _client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.server)

    def address(self, run: str) -> str:
        return f"s3://{self.name}/{run}"

    def names(self, run: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=f"{run}/")
        return [one["Key"].removeprefix(f"{run}/") for page in pages for one in page.get("Contents", [])]

    def read(self, run: str, name: str) -> bytes:
        return self._client.get_object(Bucket=self.name, Key=f"{run}/{name}")["Body"].read()

    def write(self, run: str, name: str, data: bytes, **settings: str) -> None:
        self._client.put_object(Bucket=self.name, Key=f"{run}/{name}", Body=data, **settings)

    def remove(self, run: str, name: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=f"{run}/{name}")


@contextmanager
def object_store(patch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A server with one bucket, which this process and those that it starts can reach."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request else
    host, port = server.get_host_and_port()
    bucket = Bucket("studies", f"http://{host}:{port}")
    for name, value in bucket.environment.items():
        patch.setenv(name, value)
    bucket._client.create_bucket(Bucket=bucket.name)
    try:
        yield bucket
    finally:
        server.stop()
