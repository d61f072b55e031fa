"""An emulated Intel GPU that poses as an SR-IOV virtual function, served to QEMU over vfio-user."""
