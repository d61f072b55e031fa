#include "ze_table.h"
#include "ze_space.h"
#include "fds.h"
#include "object_reply.h"
