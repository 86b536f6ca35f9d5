"""Shares a pool, one of its allocations and an event with another process, which sees the bytes once the event has happened."""

import ctypes
import multiprocessing

from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
)

SIZE = 4096


def pinned():
    block = LegacyPinnedMemoryResource().allocate(SIZE)
    return block, (ctypes.c_ubyte * SIZE).from_address(int(block.handle))


def take(given, taken):
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    pool, buffer, event = given.get(), given.get(), given.get()
    assert pool.is_mapped and pool.device_id == 0
    stream.wait(event)
    block, data = pinned()
    buffer.copy_to(block, stream=stream)
    stream.sync()
    assert bytes(data) == b"\x07" * SIZE
    buffer.close(stream)
    stream.sync()
    taken.put("seen")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    given, taken = multiprocessing.Queue(), multiprocessing.Queue()
    child = multiprocessing.Process(target=take, args=(given, taken))
    child.start()
    buffer = pool.allocate(SIZE, stream=stream)
    buffer.fill(7, stream=stream)
    event = stream.record(options={"ipc_enabled": True})
    for one in (pool, buffer, event):
        given.put(one)
    assert taken.get(timeout=60) == "seen"
    child.join(60)
    assert child.exitcode == 0
    buffer.close(stream)
    print("done")
