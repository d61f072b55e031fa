#pragma once
/* The fences of a dma-buf: what somebody put in by IMPORT_SYNC_FILE and what EXPORT_SYNC_FILE and SYNC wait for.

   Within a process they are a table by inode. Other processes see each pending fence as a lock on one byte of the file,
   far behind its end: it goes when the fence signals, or when the process that put it in dies. */

/* Arguments of the ioctls as the program passed them. 0 or -errno. */
int dma_buf_import_sync_file(int fd, void *argument);
int dma_buf_export_sync_file(int fd, void *argument);
/* Waits as SYNC START does; flags: DMA_BUF_SYNC_READ, _WRITE. */
int dma_buf_wait(int fd, unsigned flags);
/* In a forked child: pending fences are the parent's. */
void dma_buf_fences_fork_child(void);
