/* The errnos of dispatch and of the DRM core's ioctls, row by row, and which of two wrongs wins. */
#include "check.h"

static void dispatch(int fd)
{
    uint64_t word[32] = {0};
    CHECK_EQ(xe_mock_ioctl(fd, 0xc0406500, word), -ENOTTY); /* type 'e' */
    CHECK_EQ(xe_mock_ioctl(fd, 0xc0406450, word), -EINVAL); /* driver range, none there */
    CHECK_EQ(xe_mock_ioctl(fd, 0xc04064f0, word), -EINVAL); /* core range, none there */
    CHECK_EQ(CALL(fd, XE_VM_CREATE, NULL), -EFAULT);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, (void *)8), -EFAULT);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, (void *)~0xfffull), -EFAULT);
    CHECK_EQ(CALL(fd, GEM_FLINK, word), -EACCES); /* not on a render node; and even a wrong handle does not beat it */
    CHECK_EQ(CALL(fd, GEM_OPEN, word), -EACCES);
    CHECK_EQ(CALL(fd, SET_CLIENT_CAP, word), -EACCES);
    CHECK_EQ(CALL(fd, MODE_CREATE_DUMB, word), -EACCES);
    CHECK_EQ(CALL(fd, SET_CLIENT_CAP, NULL), -EFAULT); /* copied in before the permission is looked at */

    /* A shorter argument is extended by zeros, a longer one may hold anything behind. */
    struct {
        struct drm_xe_vm_create args;
        uint64_t more[8];
    } longer = {.more = {1, 2, 3, 4, 5, 6, 7, 8}};
    unsigned long request = (DRM_IOCTL_XE_VM_CREATE & ~0x3fff0000ul) | sizeof(longer) << 16;
    CHECK_EQ(xe_mock_ioctl(fd, request, &longer), 0);
    CHECK(longer.args.vm_id);
    CHECK_EQ(longer.more[7], 8);
    struct drm_gem_close closed = {.pad = 7};
    CHECK_EQ(xe_mock_ioctl(fd, 0x40046409, &closed), -EINVAL); /* 4 bytes: handle 0 */
    destroy_vm(fd, longer.args.vm_id);

    /* An argument that straddles into nothing, and one that cannot be written back. */
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(pages + PAGE, PAGE) == 0);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, pages + PAGE - 24), -EFAULT);
    CHECK_EQ(CALL(fd, GET_CAP, pages + PAGE - 16), -EOPNOTSUPP);
    struct drm_get_cap *cap = (void *)pages;
    cap->capability = DRM_CAP_PRIME;
    CHECK(mprotect(pages, PAGE, PROT_READ) == 0);
    CHECK_EQ(CALL(fd, GET_CAP, cap), -EFAULT); /* the copy-out's error, though the handler succeeded */
    CHECK(munmap(pages, PAGE) == 0);
    char *write_only = mmap(NULL, PAGE, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, write_only), 0);
    CHECK(munmap(write_only, PAGE) == 0);
}

static void version_and_caps(int fd)
{
    char name[8] = "........", date[4] = "....", desc[64] = "";
    struct drm_version v = {.name_len = 8, .name = name, .date_len = 4, .date = date, .desc_len = 4, .desc = desc};
    CHECK_EQ(CALL(fd, VERSION, &v), 0);
    CHECK(v.version_major == 1 && v.version_minor == 1 && v.version_patchlevel == 0);
    CHECK_EQ(v.name_len, 2);
    CHECK(!memcmp(name, "xe......", 8)); /* no NUL */
    CHECK(!memcmp(date, "0...", 4));
    CHECK(v.desc_len > 4 && !desc[4]);
    v = (struct drm_version){.name_len = 8, .name = (char *)8};
    CHECK_EQ(CALL(fd, VERSION, &v), -EFAULT);
    v = (struct drm_version){0};
    CHECK_EQ(CALL(fd, VERSION, &v), 0);
    CHECK_EQ(v.name_len, 2);

    static const struct {
        uint64_t capability;
        int error;
        uint64_t value;
    } caps[] = {
        {DRM_CAP_PRIME, 0, 3},
        {DRM_CAP_TIMESTAMP_MONOTONIC, 0, 1},
        {DRM_CAP_SYNCOBJ, 0, 1},
        {DRM_CAP_SYNCOBJ_TIMELINE, 0, 1},
        {DRM_CAP_DUMB_BUFFER, -EOPNOTSUPP, 0},
        {0x77, -EOPNOTSUPP, 0},
    };
    for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
        struct drm_get_cap cap = {.capability = caps[i].capability, .value = 99};
        CHECK_EQ(CALL(fd, GET_CAP, &cap), caps[i].error);
        CHECK_EQ(cap.value, caps[i].value); /* written back on failure, too */
    }
}

static void client_name(int fd)
{
    char text[80];
    memset(text, 'n', sizeof(text));
    struct drm_set_client_name name = {.name_len = 65, .name = (uintptr_t)text};
    CHECK_EQ(CALL(fd, SET_CLIENT_NAME, &name), -EINVAL);
    name.name_len = 64;
    CHECK_EQ(CALL(fd, SET_CLIENT_NAME, &name), 0);
    text[3] = '\n';
    CHECK_EQ(CALL(fd, SET_CLIENT_NAME, &name), -EINVAL);
    text[3] = 0;
    CHECK_EQ(CALL(fd, SET_CLIENT_NAME, &name), -EINVAL);
    name = (struct drm_set_client_name){.name_len = 4, .name = 8};
    CHECK_EQ(CALL(fd, SET_CLIENT_NAME, &name), -EFAULT);
    name = (struct drm_set_client_name){0};
    CHECK_EQ(CALL(fd, SET_CLIENT_NAME, &name), 0);
}

static void handles(int fd)
{
    CHECK_EQ(close_bo(fd, 0), -EINVAL);
    CHECK_EQ(close_bo(fd, 1), -EINVAL);
    uint32_t a = make_bo(fd, PAGE, VRAM, WC, 0), b = make_bo(fd, PAGE, VRAM, WC, 0), c = make_bo(fd, PAGE, VRAM, WC, 0);
    CHECK(a == 1 && b == 2 && c == 3);
    struct drm_gem_close padded = {.handle = b, .pad = 5};
    CHECK_EQ(CALL(fd, GEM_CLOSE, &padded), 0); /* pad is not looked at */
    CHECK_EQ(close_bo(fd, b), -EINVAL);
    CHECK_EQ(make_bo(fd, PAGE, VRAM, WC, 0), b); /* the lowest free number, at once */

    struct drm_gem_change_handle change = {.handle = a, .new_handle = 5};
    CHECK_EQ(CALL(fd, GEM_CHANGE_HANDLE, &change), -EINVAL); /* the reference kernel has it no more */
    for (uint32_t handle = 1; handle <= 3; handle++)
        CHECK_EQ(close_bo(fd, handle), 0);
}

static void flink(void)
{
    int card = xe_mock_open(0, true, O_CLOEXEC);
    CHECK(card >= 0);
    struct drm_gem_flink name = {.handle = 9};
    CHECK_EQ(CALL(card, GEM_FLINK, &name), -ENOENT);
    name.handle = make_bo(card, 3 * PAGE, VRAM, WC, 0);
    CHECK_EQ(CALL(card, GEM_FLINK, &name), 0);
    uint32_t first = name.name;
    CHECK(first);
    CHECK_EQ(CALL(card, GEM_FLINK, &name), 0);
    CHECK_EQ(name.name, first);
    struct drm_gem_open opened = {.name = first + 1};
    CHECK_EQ(CALL(card, GEM_OPEN, &opened), -ENOENT);
    opened.name = first;
    CHECK_EQ(CALL(card, GEM_OPEN, &opened), 0);
    CHECK(opened.handle != name.handle && opened.size == 3 * PAGE);
    CHECK_EQ(close_bo(card, name.handle), 0);
    CHECK_EQ(CALL(card, GEM_OPEN, &opened), 0); /* another handle keeps the name */
    close_node(card);
}

int main(void)
{
    int fd = open_node(0);
    dispatch(fd);
    version_and_caps(fd);
    client_name(fd);
    handles(fd);
    close_node(fd);
    flink();
    check_nothing_left(0);
    return 0;
}
