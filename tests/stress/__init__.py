"""Many processes, threads and turns of everything; ZE_IPC_STRESS=long asks for the long forms."""
