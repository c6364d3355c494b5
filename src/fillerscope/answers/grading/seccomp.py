"""Take network, files, programs and signals from this process for good, by seccomp, where Linux has it.

What is refused ends in EACCES. Unlike an audit hook it also holds for code that is not Python.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys

# System calls by machine, and what identifies the machine to the kernel. Reading, memory and time stay.
_X86_64 = {
    "socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53,
    "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "truncate": 76, "ftruncate": 77, "rename": 82,
    "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91,
    "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "mknod": 133, "chroot": 161, "mount": 165, "tkill": 200,
    "tgkill": 234, "mkdirat": 258, "mknodat": 259, "fchownat": 260, "unlinkat": 263, "renameat": 264, "linkat": 265,
    "symlinkat": 266, "fchmodat": 268, "unshare": 272, "process_vm_writev": 311, "renameat2": 316, "bpf": 321,
    "execveat": 322, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435, "openat2": 437,
}  # fmt: skip
_AARCH64 = {
    "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "mount": 40,
    "truncate": 45, "ftruncate": 46, "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55,
    "unshare": 97, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131, "socket": 198, "socketpair": 199,
    "bind": 200, "listen": 201, "connect": 203, "sendto": 206, "sendmsg": 211, "clone": 220, "execve": 221,
    "process_vm_writev": 271, "renameat2": 276, "bpf": 280, "execveat": 281, "io_uring_setup": 425,
    "pidfd_open": 434, "clone3": 435, "openat2": 437,
}  # fmt: skip
MACHINES = {"x86_64": (0xC000003E, _X86_64, {2: 1, 257: 2}), "aarch64": (0xC00000B7, _AARCH64, {56: 2})}
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000  # of the flags of open: write, create, truncate, append
_X32 = 0x40000000  # the same calls under other numbers, on x86_64


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def deny_effects() -> bool:
    """Refuse all that has an effect outside this process, from now on. False where the system has no way to do that."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES or struct.calcsize("P") != 8:
        return False
    code = ctypes.create_string_buffer(b"".join(_filter(machine)))
    program = _Program(len(code.raw[:-1]) // 8, ctypes.addressof(code))
    system = ctypes.CDLL(None)
    if system.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return not system.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _filter(machine: str) -> list[bytes]:
    """The filter, as the kernel's virtual machine reads it: each jump is to the next line or over one or two."""
    identity, denied, opening = MACHINES[machine]
    code = [_line(_LOAD, 4), _line(_EQUAL, identity, over=1), _line(_RETURN, _REFUSE), _line(_LOAD, 0)]
    code += [_line(_AT_LEAST, _X32, otherwise=1), _line(_RETURN, _REFUSE)]
    for number in denied.values():
        code += [_line(_EQUAL, number, otherwise=1), _line(_RETURN, _REFUSE)]
    for number, place in opening.items():  # which argument has the flags
        flags = [_line(_LOAD, 16 + 8 * place), _line(_ANY_BIT, _WRITING, otherwise=1), _line(_RETURN, _REFUSE)]
        code += [_line(_EQUAL, number, otherwise=len(flags) + 1), *flags, _line(_RETURN, _ALLOW)]
    return [*code, _line(_RETURN, _ALLOW)]


def _line(operation: int, value: int, over: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", operation, over, otherwise, value)
