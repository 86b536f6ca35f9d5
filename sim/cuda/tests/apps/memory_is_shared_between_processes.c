// Memory of another process: by IPC handle and by file descriptor. Only who made it is charged.
#include "app.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int wire[2];

static void send_descriptor(int descriptor) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    TRUE(sendmsg(wire[1], &message, 0) == 1);
}

static int receive_descriptor(void) {
    int descriptor;
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    TRUE(recvmsg(wire[0], &message, 0) == 1);
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

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
    TRUE(write(wire[1], &ipc, sizeof ipc) == sizeof ipc);
    DO(cuMemCreate(&handle, size, &prop, 0));
    DO(cuMemAddressReserve(&base, size, 0, 0, 0));
    DO(cuMemMap(base, size, 0, handle, 0));
    DO(cuMemSetAccess(base, size, &access, 1));
    DO(cuMemcpyHtoD_v2(base, "by descriptor", 14));
    DO(cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
    send_descriptor(descriptor);
    TRUE(read(wire[1], &answer, 1) == 1);
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
    TRUE(read(wire[0], &ipc, sizeof ipc) == sizeof ipc);
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
    TRUE(write(wire[0], "", 1) == 1);
}

int main(void) {
    int status;
    TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, wire) == 0);
    pid_t child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        close(wire[0]);
        give();
        exit(0);
    }
    close(wire[1]);
    take();
    TRUE(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
