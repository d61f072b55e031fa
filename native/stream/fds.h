#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Closes every descriptor that is not negative. */
void fds_close(const int32_t *fds, uint64_t count);

/*
 * Descriptors that live for a moment only (an export on its way out, an import on its way in) are made under this
 * lock: so threads that stream at once cannot take the last ones from each other.
 */
void fds_lock(void);
bool fds_trylock(void);
void fds_unlock(void);

/* How many more descriptors this process could open, counted up to wanted. */
uint32_t fds_free(uint32_t wanted);
