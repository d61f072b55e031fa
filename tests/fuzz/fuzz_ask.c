/* An importer's question, against a broker that answers what the input says: with empty messages, with descriptors in
 * each of them, with nothing. Nothing is written beyond the columns, and no descriptor stays open. */
#include "fuzz.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "ask.h"
#include "fds.h"
#include "object_stream.h"
#include "slice.h"

enum { OPEN_FDS = 1024, MESSAGE = 2048, MOST_FDS = 80 };

static char directory[] = "/tmp/zeipc-fuzz-XXXXXX";
static int listening = -1;

static void clean_up(void)
{
    char path[sizeof(directory) + 2];

    snprintf(path, sizeof(path), "%s/b", directory);
    unlink(path);
    rmdir(directory);
}

static void set_up(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    REQUIRE(mkdtemp(directory));
    atexit(clean_up);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/b", directory);
    listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    REQUIRE(bind(listening, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(listening, 4) == 0);
}

static void say(struct input *input, int peer)
{
    static const uint8_t reply[] = {'Z', 'R', '0', '1', 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    uint8_t how = take8(input), bytes[256] = {0};
    uint32_t count = how & 0x40 ? take8(input) % MOST_FDS : how % 4;
    size_t size = how & 0x20 ? 0 : sizeof(reply) + take8(input) % 200;
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    int32_t fds[MOST_FDS];

    memcpy(bytes, reply, sizeof(reply));
    if (how & 0x10)
        bytes[take8(input)] ^= take8(input);
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC);
        REQUIRE(fds[i] >= 0);
    }
    if (count)
        object_stream_send_fds(peer, &part, 1, fds, count);
    else
        send(peer, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    fds_close(fds, count);
}

static void *broker(void *argument)
{
    struct pollfd set = {.fd = listening, .events = POLLIN};
    struct input *input = argument;
    uint8_t how = take8(input);
    uint8_t request[256];
    int peer = poll(&set, 1, 5000) == 1 ? accept4(listening, NULL, NULL, SOCK_CLOEXEC) : -1;

    if (peer < 0)
        return NULL;
    if (how & 1)
        recv(peer, request, sizeof(request), 0);
    for (unsigned i = 0; i < 6 && input->left; i++)
        say(input, peer);
    close(peer);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.bytes = data, .left = size};
    uint8_t message[MESSAGE + 1] = {0};
    struct ask ask = {.directory = directory, .name = "b", .socket = -1, .message = message, .room = MESSAGE};
    uint32_t before;
    pthread_t thread;
    int rc;

    if (listening < 0)
        set_up();
    before = OPEN_FDS - fds_free(OPEN_FDS);
    ask.objects = take8(&input) % 4 != 0;
    ask.deadline = now_ns() + 5000000000;
    message[MESSAGE] = 0x5a;
    REQUIRE(pthread_create(&thread, NULL, broker, &input) == 0);
    do {
        rc = ask_broker(NULL, &ask);
    } while (rc == -EINTR);
    REQUIRE(message[MESSAGE] == 0x5a && ask.count <= ASK_FDS);
    REQUIRE(rc == 0 ? ask.socket >= 0 && ask.length <= MESSAGE : ask.socket == -1 && ask.count == 0);
    if (rc == 0) {
        fds_close(ask.fds, ask.count);
        close(ask.socket);
    }
    pthread_join(thread, NULL);
    REQUIRE(OPEN_FDS - fds_free(OPEN_FDS) == before);
    return 0;
}
