/* Its constructor runs before that of the library preloaded in front of it, as those of libselinux and others do. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xe_uapi.h"

__attribute__((constructor)) static void early(void)
{
    struct stat st;
    char name[8] = "";
    struct drm_version version = {.name_len = sizeof(name), .name = name};
    int fd = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
    int result = fd < 0 ? -1 : ioctl(fd, DRM_IOCTL_VERSION, &version);
    DIR *directory = opendir("/sys/class/drm");
    dprintf(1, "early %d %s %d %d\n", result, name, stat("/sys/class/drm/card0", &st), directory != NULL);
    if (directory)
        closedir(directory);
    close(fd);
}
