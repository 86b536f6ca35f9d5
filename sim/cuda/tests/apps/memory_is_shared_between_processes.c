// Memory of another process: by IPC handle and by file descriptor. Only who made it is charged.
#include "wire.h"

static void give(void) {
    start();
    Ptr memory, handle, base;
    IpcHandle ipc;
    Prop prop = on_device();
    Access access = {prop.location, 3};
    const size_t size = 2 << 20;
    int descriptor;
    char answer;
    DO(cuMemAlloc_v2(&memory, 5000));
    DO(cuMemcpyHtoD_v2(memory + 1000, "by handle", 10));
    DO(cuIpcGetMemHandle(&ipc, memory));
    Ptr own;
    EXPECT(cuIpcOpenMemHandle_v2(&own, ipc, 1), INVALID_CONTEXT);
    DO(cuCtxSynchronize()); // A copy may return before it has landed.
    tell(1, &ipc, sizeof ipc);
    DO(cuMemCreate(&handle, size, &prop, 0));
    DO(cuMemAddressReserve(&base, size, 0, 0, 0));
    DO(cuMemMap(base, size, 0, handle, 0));
    DO(cuMemSetAccess(base, size, &access, 1));
    DO(cuMemcpyHtoD_v2(base, "by descriptor", 14));
    DO(cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
    DO(cuCtxSynchronize());
    send_descriptor(descriptor);
    hear(1, &answer, 1);
    char text[16];
    DO(cuMemcpyDtoH_v2(text, base, 16));
    TRUE(strcmp(text, "and back") == 0);
}

static void take(void) {
    start();
    IpcHandle ipc;
    Ptr memory, again, handle, base;
    Prop prop = on_device();
    Access access = {prop.location, 3};
    const size_t size = 2 << 20;
    char text[16];
    hear(0, &ipc, sizeof ipc);
    DO(cuIpcOpenMemHandle_v2(&memory, ipc, 1));
    DO(cuIpcOpenMemHandle_v2(&again, ipc, 1));
    TRUE(memory == again);
    DO(cuMemcpyDtoH_v2(text, memory + 1000, 10));
    TRUE(strcmp(text, "by handle") == 0);
    DO(cuIpcCloseMemHandle(memory));
    DO(cuMemcpyDtoH_v2(text, memory + 1000, 10));
    DO(cuIpcCloseMemHandle(memory));
    EXPECT(cuMemcpyDtoH_v2(text, memory + 1000, 10), INVALID_VALUE);

    long descriptor = receive_descriptor();
    size_t before = free_bytes();
    DO(cuMemImportFromShareableHandle(&handle, (void *)descriptor, 1));
    DO(cuMemAddressReserve(&base, size, 0, 0, 0));
    DO(cuMemMap(base, size, 0, handle, 0));
    DO(cuMemSetAccess(base, size, &access, 1));
    TRUE(free_bytes() == before);
    DO(cuMemcpyDtoH_v2(text, base, 14));
    TRUE(strcmp(text, "by descriptor") == 0);
    DO(cuMemcpyHtoD_v2(base, "and back", 9));
    DO(cuCtxSynchronize());
    tell(0, "", 1);
}

int main(void) { return between(give, take); }
