"""Prints as JSON what nvidia-ml-py reads of every device, once the first one is busy."""

import json
import sys
import time

import pynvml as nvml

PATIENCE_SECONDS = 60


def device(handle):
    utilization = optional(nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    memory_v2 = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {
        "name": nvml.nvmlDeviceGetName(handle),
        "uuid": nvml.nvmlDeviceGetUUID(handle),
        "memory": [memory.total, memory.free, memory.used],
        "memory_v2": [memory_v2.total, memory_v2.free, memory_v2.used],
        "load": utilization and utilization.gpu,
        "processes": processes(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        "processes_v2": processes(nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)),
        "drawing": len(nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)),
        "samples": [[s.pid, s.smUtil] for s in optional(nvml.nvmlDeviceGetProcessUtilization, handle, 0) or []],
        "temperature": optional(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "clocks_event_reasons": optional(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        "serial": optional(nvml.nvmlDeviceGetSerial, handle),
    }


def processes(infos):
    return [[i.pid, i.usedGpuMemory, i.gpuInstanceId] for i in infos]


def optional(call, *arguments):
    try:
        return call(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_NotFound):
        return None


def gpu(index):
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    found = device(handle)
    assert nvml.nvmlDeviceGetIndex(handle) == index
    for uuid in (found["uuid"], found["uuid"].removeprefix("GPU-")):
        assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)) == index
    state = nvml.nvmlDeviceGetPerformanceState(handle)
    assert state in nvml.nvmlDeviceGetSupportedPerformanceStates(handle)
    least, most = nvml.nvmlDeviceGetMinMaxClockOfPState(handle, nvml.NVML_CLOCK_SM, state)
    assert least <= most <= nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    assert nvml.nvmlDeviceGetMemoryAffinity(handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)[0] == 1
    assert nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(handle) == nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
    assert nvml.nvmlDeviceGetBrand(handle) == nvml.NVML_BRAND_UNKNOWN
    assert nvml.nvmlDeviceGetVirtualizationMode(handle) == nvml.NVML_GPU_VIRTUALIZATION_MODE_NONE
    assert not nvml.nvmlDeviceGetDisplayMode(handle) and not nvml.nvmlDeviceGetDisplayActive(handle)
    bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(bus)) == index
    found["mig"] = [
        device(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i))
        for i in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    ]
    found["mig_mode"] = nvml.nvmlDeviceGetMigMode(handle)[0]
    return found


nvml.nvmlInit()
if "busy" in sys.argv:
    first = nvml.nvmlDeviceGetHandleByIndex(0)
    give_up = time.monotonic() + PATIENCE_SECONDS
    while nvml.nvmlDeviceGetUtilizationRates(first).gpu < 50:
        assert time.monotonic() < give_up, "the device never got busy"
        time.sleep(0.05)
print(
    json.dumps(
        {
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "cuda": nvml.nvmlSystemGetCudaDriverVersion(),
            "gpus": [gpu(i) for i in range(nvml.nvmlDeviceGetCount())],
        }
    )
)
nvml.nvmlShutdown()
