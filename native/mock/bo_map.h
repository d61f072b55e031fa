#pragma once
struct bo;
/* When a bo dies. */
void bo_view_free(struct bo *bo);
