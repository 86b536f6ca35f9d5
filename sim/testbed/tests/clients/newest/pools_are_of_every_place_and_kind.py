"""Pools of pinned memory on the host, of managed memory at each preferred location, of zero bytes, and with access for a peer."""

from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)

SIZE = 1 << 16
device, peer = Device(0), Device(1)
device.set_current()
stream = device.create_stream()

for options in (None, PinnedMemoryResourceOptions(max_size=1 << 25), PinnedMemoryResourceOptions(ipc_enabled=True)):
    pool = PinnedMemoryResource(options)
    block = pool.allocate(SIZE, stream=stream)
    assert pool.attributes.used_mem_current == SIZE
    block.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0

for wish in ({}, {"preferred_location": 0}, {"preferred_location": -1}, {"preferred_location_type": "host_numa"}):
    pool = ManagedMemoryResource(ManagedMemoryResourceOptions(**wish))
    block = pool.allocate(SIZE, stream=stream)
    block.prefetch(device, stream=stream)
    stream.sync()
    block.close(stream)

nothing = DeviceMemoryResource(device).allocate(0, stream=stream)
assert nothing.size == 0
nothing.close(stream)

assert device.can_access_peer(peer)
pool = DeviceMemoryResource(peer, DeviceMemoryResourceOptions())
pool.peer_accessible_by = [device]
assert pool.peer_accessible_by == {device}
pool.peer_accessible_by = []
assert pool.peer_accessible_by == set()
print("done")
