"""Typical use of cuda-core: buffers, pools, a graph that forks and joins, memory that grows."""

import ctypes

from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    VirtualMemoryResource,
    launch,
)

MIB = 1 << 20
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin_us_1000(.param .u64 anything) { ret; }
"""
ONE = LaunchConfig(grid=1, block=32)

device = Device(0)
device.set_current()
stream = device.create_stream()

# Buffers: a copy to the device and back returns the same bytes.
pinned = LegacyPinnedMemoryResource().allocate(MIB)
data = (ctypes.c_ubyte * MIB).from_address(int(pinned.handle))
buffer = device.allocate(MIB, stream=stream)
data[MIB - 1] = 7
buffer.copy_from(pinned, stream=stream)
stream.sync()
data[MIB - 1] = 0
buffer.copy_to(pinned, stream=stream)
stream.sync()
assert data[MIB - 1] == 7

# A pool that can be shared between processes; its counts are right.
options = DeviceMemoryResourceOptions(max_size=64 * MIB, ipc_enabled=True)
pool = DeviceMemoryResource(device, options)
block = pool.allocate(MIB, stream=stream)
assert pool.attributes.used_mem_current == MIB
block.close(stream)
assert pool.attributes.used_mem_current == 0

# Kernels launched directly, then captured in two branches that join.
kernel = ObjectCode.from_ptx(PTX).get_kernel("spin_us_1000")
launch(stream, ONE, kernel, buffer.handle)
event = stream.record()
stream.sync()
assert event.is_done
builder = device.create_graph_builder()
builder.begin_building()
launch(builder, ONE, kernel, buffer.handle)
left, right = builder.split(2)
launch(left, ONE, kernel, buffer.handle)
launch(right, ONE, kernel, buffer.handle)
builder = type(builder).join(left, right)
graph = builder.end_building().complete()
graph.upload(stream)
graph.launch(stream)
graph.launch(stream)
stream.sync()

# Virtual memory.
virtual = VirtualMemoryResource(device).allocate(MIB)
assert virtual.size == 2 * MIB
virtual.close()
buffer.close(stream)
stream.sync()
print(f"{device.name}: done")
