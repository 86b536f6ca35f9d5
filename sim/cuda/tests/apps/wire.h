// Two processes of a program, and a wire between them that carries descriptors too.
#pragma once
#include "app.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int wire[2];

static inline void send_descriptor(int descriptor) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    TRUE(sendmsg(wire[1], &message, 0) == 1);
}

static inline int receive_descriptor(void) {
    int descriptor;
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    TRUE(recvmsg(wire[0], &message, 0) == 1);
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

static inline void tell(int end, const void *data, size_t size) { TRUE(write(wire[end], data, size) == (ssize_t)size); }
static inline void hear(int end, void *data, size_t size) { TRUE(read(wire[end], data, size) == (ssize_t)size); }

// Runs `give` in a child with wire[1] and `take` here with wire[0].
static inline int between(void (*give)(void), void (*take)(void)) {
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
