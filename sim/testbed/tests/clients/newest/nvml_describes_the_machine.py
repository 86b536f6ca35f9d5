"""NVML queries of monitors apart from figures: the machine's description and the connections between devices."""

import ctypes
import re

import pynvml as nvml

nvml.nvmlInit()
branch = nvml.nvmlSystemGetDriverBranch().branch
assert re.fullmatch(r"r\d+_\d+", branch), branch
one, other = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
major, _ = nvml.nvmlDeviceGetCudaComputeCapability(one)
generations = {8: nvml.NVML_DEVICE_ARCH_AMPERE, 9: nvml.NVML_DEVICE_ARCH_HOPPER}
assert nvml.nvmlDeviceGetArchitecture(one) == generations[major]

plain, extended = nvml.nvmlDeviceGetPciInfo(one), nvml.nvmlPciInfoExt_v1_t()
extended.version = nvml.nvmlPciInfoExt_v1
nvml.nvmlDeviceGetPciInfoExt(one, ctypes.byref(extended))
assert (plain.bus, plain.busId) == (extended.bus, extended.busId)
assert extended.baseClass == 3

for scope in (nvml.NVML_AFFINITY_SCOPE_NODE, nvml.NVML_AFFINITY_SCOPE_SOCKET):
    assert any(nvml.nvmlDeviceGetCpuAffinityWithinScope(one, 4, scope))
status = nvml.nvmlDeviceGetP2PStatus(one, other, 0)  # read; the constant is a tuple
print(branch, "peers" if status == nvml.NVML_P2P_STATUS_OK else "no peers")

# NVML and the driver agree about peers.
from cuda.bindings import driver

assert driver.cuInit(0) == (0,)
assert driver.cuDeviceCanAccessPeer(0, 1) == (0, int(status == nvml.NVML_P2P_STATUS_OK))
nvml.nvmlShutdown()
print("done")
