#include "xe_mock.h"
