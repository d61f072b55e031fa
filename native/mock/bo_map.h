#pragma once
#include <stdbool.h>
struct bo;
/* When a bo dies. */
void bo_view_free(struct bo *bo);
/* Marks the bo as purged unless somebody has it pinned. dev->lock held. */
bool bo_view_purge(struct bo *bo);
