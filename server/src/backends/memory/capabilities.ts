import type { Capabilities } from '@cay/sdk/protocol';

export function memoryCapabilities(): Capabilities {
  return {
    backend: 'memory',
    runtimes: ['memory'],
    templates: ['base'],
    abilities: {
      isolation: false,
      ownIds: false,
      processes: false,
      pty: false,
      signals: true,
      treeKill: true,
      users: true,
      xattrs: true,
      watch: true,
      tar: true,
      ports: true,
      cpuLimit: true,
      memoryLimit: true,
      diskLimit: true,
      pidsLimit: true,
      openFilesLimit: false,
      resize: true,
      readOnlyRoot: true,
      survivesRestart: false,
      freeze: true,
      suspend: true,
      snapshots: true,
      memorySnapshots: false,
    },
    notes: {
      isolation: "Programs are functions of the server's own process",
      ownIds: "Programs run as the server's own user",
      processes: 'Programs are functions; only those registered and a few built-in ones exist',
      pty: 'There are no terminals in memory',
      signals:
        'Every signal that ends a process ends the command; none can be trapped, and SIGSTOP is refused',
      cpuLimit: 'Counts what programs say that they compute',
      memoryLimit: 'Counts what programs say that they allocate',
      pidsLimit: 'Counts programs',
      openFilesLimit: 'Programs have no file descriptors',
      survivesRestart: "Sandboxes live in the server's own process and end with it",
      freeze: 'A program stops at its next call to the sandbox; one that makes none runs on',
      snapshots:
        "Snapshots live in the server's own process and end with it; its archives are for this backend alone",
      memorySnapshots: 'What a function has in its variables cannot be kept',
    },
  };
}
