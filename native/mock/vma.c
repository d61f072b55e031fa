#include "vma.h"

#include <errno.h>
#include <stdlib.h>

#include "gem.h"
#include "purge.h"

/* xorshift: balance needs randomness, not secrecy. */
static uint32_t random_priority(void)
{
    static _Thread_local uint32_t state;
    if (!state)
        state = (uint32_t)(uintptr_t)&state * 2654435761u | 1;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void link_to_bo(struct vma *vma)
{
    struct bo *bo = vma->bo;
    vma->next_in_bo = bo->vmas;
    vma->link_in_bo = &bo->vmas;
    if (bo->vmas)
        bo->vmas->link_in_bo = &vma->next_in_bo;
    bo->vmas = vma;
}

static void attach(struct vma *vma)
{
    struct device *dev = vma->vm->dev;
    vma->priority = random_priority();
    vma->left = vma->right = NULL;
    atomic_fetch_add_explicit(&dev->num_mappings, 1, memory_order_relaxed);
    if (!vma->bo)
        return;
    bo_get(vma->bo);
    pthread_mutex_lock(&dev->lock);
    link_to_bo(vma);
    pthread_mutex_unlock(&dev->lock);
}

struct vma *vma_new(struct vm *vm, uint64_t start, uint64_t end, struct bo *bo, uint64_t offset, uint32_t flags,
                    uint16_t pat)
{
    struct vma *vma = malloc(sizeof(*vma));
    if (!vma)
        return NULL;
    *vma = (struct vma){.pat = pat,
                        .flags = (uint16_t)flags,
                        .start = start,
                        .end = end,
                        .offset = offset,
                        .bo = bo,
                        .vm = vm,
                        .default_pat = pat};
    attach(vma);
    return vma;
}

struct vma *vma_part(const struct vma *vma, uint64_t start, uint64_t end)
{
    struct vma *part = malloc(sizeof(*part));
    if (!part)
        return NULL;
    *part = *vma;
    part->start = start;
    part->end = end;
    if (vma->bo || vma->flags & VMA_USERPTR)
        part->offset = vma->offset + (start - vma->start);
    attach(part);
    return part;
}

static uint64_t free_tree_locked(struct vma *tree)
{
    if (!tree)
        return 0;
    uint64_t count = free_tree_locked(tree->left) + free_tree_locked(tree->right) + 1;
    if (tree->bo) {
        *tree->link_in_bo = tree->next_in_bo;
        if (tree->next_in_bo)
            tree->next_in_bo->link_in_bo = tree->link_in_bo;
        if (tree->bo->vmas && tree->bo->vmas->purge) /* perhaps all that are left do not need it */
            purge_update_locked(tree->bo);
        bo_put_locked(tree->bo);
    }
    free(tree);
    return count;
}

void vma_free_tree(struct device *dev, struct vma *tree)
{
    if (!tree)
        return;
    pthread_mutex_lock(&dev->lock);
    uint64_t count = free_tree_locked(tree);
    pthread_mutex_unlock(&dev->lock);
    atomic_fetch_sub_explicit(&dev->num_mappings, count, memory_order_relaxed);
}

struct vma *vma_find(struct vma *tree, uint64_t va)
{
    while (tree && (va < tree->start || va >= tree->end))
        tree = va < tree->start ? tree->left : tree->right;
    return tree;
}

struct vma *vma_find_from(struct vma *tree, uint64_t va)
{
    struct vma *best = NULL;
    while (tree) {
        if (tree->end > va) {
            best = tree;
            tree = tree->left;
        } else {
            tree = tree->right;
        }
    }
    return best;
}

/* What starts before `at`, and the rest. */
static void split(struct vma *tree, uint64_t at, struct vma **before, struct vma **after)
{
    while (tree) {
        if (tree->start < at) {
            *before = tree;
            before = &tree->right;
            tree = tree->right;
        } else {
            *after = tree;
            after = &tree->left;
            tree = tree->left;
        }
    }
    *before = *after = NULL;
}

static struct vma *merge(struct vma *left, struct vma *right)
{
    struct vma *root = NULL, **link = &root;
    while (left && right) {
        if (left->priority > right->priority) {
            *link = left;
            link = &left->right;
            left = left->right;
        } else {
            *link = right;
            link = &right->left;
            right = right->left;
        }
    }
    *link = left ? left : right;
    return root;
}

struct vma *vma_cut(struct vma **tree, uint64_t start, uint64_t end)
{
    struct vma *before, *rest, *part, *after;
    split(*tree, start, &before, &rest);
    split(rest, end, &part, &after);
    *tree = merge(before, after);
    return part;
}

/* One mapping goes to where its priority puts it: what hangs below there is split around it. */
static void insert(struct vma **link, struct vma *vma)
{
    while (*link && (*link)->priority >= vma->priority)
        link = vma->start < (*link)->start ? &(*link)->left : &(*link)->right;
    split(*link, vma->start, &vma->left, &vma->right);
    *link = vma;
}

void vma_paste(struct vma **tree, struct vma *part)
{
    if (!part)
        return;
    if (!part->left && !part->right) {
        insert(tree, part);
        return;
    }
    struct vma *before, *after;
    split(*tree, vma_leftmost(part)->start, &before, &after);
    *tree = merge(merge(before, part), after);
}

uint64_t vma_count(const struct vma *tree)
{
    return tree ? vma_count(tree->left) + vma_count(tree->right) + 1 : 0;
}

struct vma *vma_leftmost(struct vma *tree)
{
    while (tree && tree->left)
        tree = tree->left;
    return tree;
}

struct vma *vma_rightmost(struct vma *tree)
{
    while (tree && tree->right)
        tree = tree->right;
    return tree;
}

struct vma *vma_first(const struct vm *vm, uint64_t va)
{
    return vma_find_from(vm->root, va);
}

struct vma *vma_next(const struct vm *vm, const struct vma *vma)
{
    return vma_find_from(vm->root, vma->end);
}

int vma_split(struct vm *vm, uint64_t va)
{
    struct vma *vma = vma_find(vm->root, va);
    if (!vma || vma->start == va)
        return 0;
    struct vma *front = vma_part(vma, vma->start, va);
    struct vma *back = front ? vma_part(vma, va, vma->end) : NULL;
    if (!back) {
        vma_free_tree(vm->dev, front);
        return -ENOMEM;
    }
    struct vma *whole = vma_cut(&vm->root, vma->start, vma->end);
    vma_paste(&vm->root, front);
    vma_paste(&vm->root, back);
    vma_free_tree(vm->dev, whole);
    vm->num_vmas++;
    return 0;
}
