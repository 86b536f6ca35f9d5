"""Direct use of cuda-bindings: graphs node by node, mapped memory, arrays."""

import array

from cuda.bindings import driver as cu


def check(answer):
    code, *values = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else tuple(values) if values else None


def words(address, count):
    data = array.array("I", [0] * count)
    check(cu.cuMemcpyDtoH(data.buffer_info()[0], address, count * 4))
    return list(data)


check(cu.cuInit(0))
device = check(cu.cuDeviceGet(0))
context = check(cu.cuDevicePrimaryCtxRetain(device))
check(cu.cuCtxSetCurrent(context))
stream = check(cu.cuStreamCreate(1))
free_at_start = check(cu.cuMemGetInfo())[0]


# A graph built node by node, in both forms of a node's description. One node is changed after instantiation.
def fill(to, value, count):
    params = cu.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize, params.width, params.height = to, value, 4, count, 1
    return params


memory = check(cu.cuMemAlloc(64))
graph = check(cu.cuGraphCreate(0))
first = check(cu.cuGraphAddMemsetNode(graph, None, 0, fill(memory, 9, 16), context))
params = cu.CUgraphNodeParams()
params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
params.memset.dst, params.memset.value, params.memset.elementSize = memory, 4, 4
params.memset.width, params.memset.height, params.memset.ctx = 8, 1, context
second = check(cu.cuGraphAddNode(graph, [first], None, 1, params))
ready = check(cu.cuGraphInstantiate(graph, 0))
check(cu.cuGraphLaunch(ready, stream))
check(cu.cuStreamSynchronize(stream))
assert words(memory, 16) == [4] * 8 + [9] * 8
check(cu.cuGraphExecMemsetNodeSetParams(ready, first, fill(memory, 5, 16), context))
check(cu.cuGraphLaunch(ready, stream))
check(cu.cuStreamSynchronize(stream))
assert words(memory, 16) == [4] * 8 + [5] * 8
assert check(cu.cuGraphExecUpdate(ready, graph)).result == cu.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_SUCCESS
_, _, _, edges = check(cu.cuGraphGetEdges(graph, 1))
assert edges == 1
check(cu.cuGraphExecDestroy(ready))
check(cu.cuGraphDestroy(graph))
check(cu.cuMemFree(memory))

# One physical allocation mapped at two addresses; its handle is exported and imported.
shareable = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
prop.requestedHandleTypes = shareable
minimum = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
size = check(cu.cuMemGetAllocationGranularity(prop, minimum))
handle = check(cu.cuMemCreate(size, prop, 0))
base = int(check(cu.cuMemAddressReserve(4 * size, 0, 0, 0)))
check(cu.cuMemMap(base, size, 0, handle, 0))
check(cu.cuMemMap(base + size, size, 0, handle, 0))
access = cu.CUmemAccessDesc()
access.location.type, access.location.id = prop.location.type, 0
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
check(cu.cuMemSetAccess(base, 2 * size, [access], 1))
check(cu.cuMemsetD32(base, 77, 4))
assert words(base + size, 4) == [77] * 4
assert free_at_start - check(cu.cuMemGetInfo())[0] == size
descriptor = int(check(cu.cuMemExportToShareableHandle(handle, shareable, 0)))
imported = check(cu.cuMemImportFromShareableHandle(descriptor, shareable))
for one in (handle, imported, check(cu.cuMemRetainAllocationHandle(base))):
    check(cu.cuMemRelease(one))
check(cu.cuMemUnmap(base, 2 * size))
check(cu.cuMemAddressFree(base, 4 * size))

# An array and its texture, and the levels of a mipmapped array.
shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
shape.Width, shape.Height, shape.NumChannels = 64, 32, 1
shape.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
plane = check(cu.cuArray3DCreate(shape))
source = array.array("I", range(64 * 32))
target = array.array("I", [0] * 64 * 32)
copy = cu.CUDA_MEMCPY2D()
copy.WidthInBytes, copy.Height, copy.srcPitch = 256, 32, 256
copy.srcMemoryType, copy.srcHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, source.buffer_info()[0]
copy.dstMemoryType, copy.dstArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, plane
check(cu.cuMemcpy2D(copy))
check(cu.cuMemcpyAtoH(target.buffer_info()[0], plane, 0, 256))
assert target[:64] == source[:64]
resource = cu.CUDA_RESOURCE_DESC()
resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
resource.res.array.hArray = plane
texture = check(cu.cuTexObjectCreate(resource, cu.CUDA_TEXTURE_DESC(), None))
check(cu.cuTexObjectDestroy(texture))
check(cu.cuArrayDestroy(plane))
levels = check(cu.cuMipmappedArrayCreate(shape, 4))
level = check(cu.cuMipmappedArrayGetLevel(levels, 2))
assert check(cu.cuArrayGetDescriptor(level)).Width == 16
check(cu.cuMipmappedArrayDestroy(levels))

assert check(cu.cuMemGetInfo())[0] == free_at_start
print("nothing is left")
