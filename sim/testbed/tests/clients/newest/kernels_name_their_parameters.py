"""Queries of a kernel before its launch: from PTX text, and from a cubin that is made here."""

import ctypes
import struct

from cuda.bindings import driver
from cuda.core import Device, ObjectCode

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin_us_1000(.param .u64 buffer, .param .u32 count, .param .align 8 .b8 block[24]) { ret; }
"""


def parameter(ordinal, offset, size):
    return struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, offset, size << 18 | 0x1F000)


def cubin():
    """A kernel `spin_us_2` with two parameters and 1 KiB of shared memory, and a variable `answer` that is 42."""
    names = b"\0answer\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x11, 0, 5, 0, 4)
    sections = [
        ("", 0, b"", 0, 0),
        (".text.spin_us_2", 1, bytes(128), 0, 0),
        (".nv.info.spin_us_2", 0x70000000, parameter(1, 8, 4) + parameter(0, 0, 8), 0, 0),
        (".strtab", 3, names, 0, 0),
        (".symtab", 2, symbols, 3, 0),
        (".nv.global.init", 1, struct.pack("<I", 42), 0, 0),
        (".nv.shared.spin_us_2", 8, b"", 0, 1024),
    ]
    titles, title_at = b"", []
    for title, *_ in sections + [(".shstrtab",)]:
        title_at.append(len(titles))
        titles += title.encode() + b"\0"
    sections.append((".shstrtab", 3, titles, 0, 0))
    body, table = b"", b""
    for at, (_, kind, content, link, size) in zip(title_at, sections):
        table += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), size or len(content), link, 0, 4, 0)
        body += content + bytes(-len(content) % 8)
    ident = b"\x7fELF\x02\x01\x01\x33\x07".ljust(16, b"\0")
    header = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0x500550, 64, 56, 0, 64, len(sections), 7)
    return ident + header + body + table


def parameters(kernel):
    return [(one.offset, one.size) for one in kernel.arguments_info]


device = Device(0)
device.set_current()
stream = device.create_stream()
kernel = ObjectCode.from_ptx(PTX).get_kernel("spin_us_1000")
print(parameters(kernel), kernel.attributes.max_threads_per_block)
assert parameters(kernel) == [(0, 8), (8, 4), (16, 24)]

code = ObjectCode.from_cubin(cubin())
kernel = code.get_kernel("spin_us_2")
assert parameters(kernel) == [(0, 8), (8, 4)]
assert kernel.attributes.shared_size_bytes == 1024

error, module = driver.cuModuleLoadData(cubin())
assert error == 0
error, address, size = driver.cuModuleGetGlobal(module, b"answer")
assert (error, size) == (0, 4), error
word = bytearray(4)
assert driver.cuMemcpyDtoH(word, address, 4) == (0,)
assert word == b"\x2a\0\0\0"
assert driver.cuModuleGetGlobal(module, b"question")[0] == driver.CUresult.CUDA_ERROR_NOT_FOUND

# More shared memory than a block has by default needs the attribute.
error, function = driver.cuModuleGetFunction(module, b"spin_us_2")
which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def launched(shared):
    code, = driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, shared, stream.handle, arguments, 0)
    return int(code)


arguments = ((0, 0), (ctypes.c_uint64, ctypes.c_uint32))
assert driver.cuFuncGetAttribute(which, function)[1] == 48 * 1024 - 1024
assert launched(47 * 1024) == 0
assert launched(48 * 1024) == driver.CUresult.CUDA_ERROR_INVALID_VALUE
assert driver.cuFuncSetAttribute(function, which, 64 * 1024) == (0,)
assert launched(64 * 1024) == 0
assert driver.cuFuncSetAttribute(function, which, 227 * 1024) == (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
assert driver.cuFuncGetName(0)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
stream.sync()

# The compiler's log is text, also in a buffer that held other bytes.
option = driver.CUjit_option
options = [option.CU_JIT_INFO_LOG_BUFFER, option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, option.CU_JIT_LOG_VERBOSE]
options += [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
info, errors = bytearray(b"x" * 512), bytearray(b"x" * 512)
load = lambda image: int(driver.cuModuleLoadDataEx(image, 5, options, [info, 512, 1, errors, 512])[0])
assert load(PTX) == 0
assert b"spin_us_1000" in info[: info.index(0)] and errors[0] == 0
assert load(b"no image") != 0
assert info[0] == 0 and b"fatal" in errors[: errors.index(0)]
print("done")
