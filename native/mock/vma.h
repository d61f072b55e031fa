#pragma once
/* The mappings of a VM: a treap over their start addresses. A stretch of it comes off as one tree and goes back on as
   one, so replacing, unmapping and undoing cost O(log n) however many mappings they move. vm->lock is held. */
#include "core.h"

/* A mapping outside of any tree; it takes a reference of bo (may be NULL). NULL: no memory. */
struct vma *vma_new(struct vm *vm, uint64_t start, uint64_t end, struct bo *bo, uint64_t offset, uint32_t flags,
                    uint16_t pat);
/* A copy of part of a mapping, with all its attributes. */
struct vma *vma_part(const struct vma *vma, uint64_t start, uint64_t end);
/* Frees a whole tree; NULL is fine. Takes dev->lock. */
void vma_free_tree(struct device *dev, struct vma *tree);

/* The mapping that contains va, or NULL. */
struct vma *vma_find(struct vma *tree, uint64_t va);
/* The first that ends after va. */
struct vma *vma_find_from(struct vma *tree, uint64_t va);
/* Takes everything that starts in [start, end) off. */
struct vma *vma_cut(struct vma **tree, uint64_t start, uint64_t end);
/* Puts a tree back into a gap. */
void vma_paste(struct vma **tree, struct vma *part);
uint64_t vma_count(const struct vma *tree);
/* The tree's first and last mapping. */
struct vma *vma_leftmost(struct vma *tree);
struct vma *vma_rightmost(struct vma *tree);
