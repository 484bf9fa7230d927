import { SandboxSpecSchema, newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { containerConfig, resources, type ContainerConfigOptions } from './container-config.ts';

const GiB = 1024 ** 3;
const machine = { cores: 4, memoryBytes: 8 * GiB };
const options: ContainerConfigOptions = {
  installation: 'default',
  specHash: 'h',
  image: 'sha256:1',
  runtime: 'runc',
  machine,
  specText: '{}',
  setOpenFiles: true,
};

describe('the config of a container', () => {
  it('drops every capability but those of the guest, and has no network', () => {
    const config = containerConfig(newId('sbx'), SandboxSpecSchema.parse({}), options) as {
      HostConfig: Record<string, unknown>;
    };
    expect(config.HostConfig).toMatchObject({
      CapDrop: ['ALL'],
      NetworkMode: 'none',
      SecurityOpt: ['no-new-privileges:true'],
      ReadonlyRootfs: false,
    });
    expect(config.HostConfig['CapAdd']).not.toContain('SYS_ADMIN');
    expect(config.HostConfig).not.toHaveProperty('Privileged');
    expect(config.HostConfig).not.toHaveProperty('Binds');
  });

  it('has /tmp and /run to write to where the root is read-only', () => {
    const config = containerConfig(
      newId('sbx'),
      SandboxSpecSchema.parse({ readOnlyRoot: true, workdir: '/w' }),
      options,
    ) as {
      HostConfig: { Tmpfs: object };
      WorkingDir: string;
    };
    expect(Object.keys(config.HostConfig.Tmpfs).sort()).toEqual(['/.cay/run', '/run', '/tmp']);
    expect(config.WorkingDir).toBe('/w');
  });

  it('limits the disk where the engine can', () => {
    const spec = SandboxSpecSchema.parse({ limits: { diskBytes: GiB } });
    const config = containerConfig(newId('sbx'), spec, options) as { HostConfig: { StorageOpt: object } };
    expect(config.HostConfig.StorageOpt).toEqual({ size: String(GiB) });
  });

  it('limits swap to nothing, and cores to those there are', () => {
    expect(resources({ cpus: 0.5, memoryBytes: GiB, pids: 64 }, machine)).toEqual({
      NanoCpus: 5e8,
      Memory: GiB,
      MemorySwap: GiB,
      PidsLimit: 64,
    });
    expect(resources({ cpus: 16 }, machine)).toEqual({ NanoCpus: 4e9 });
  });

  it("lifts a limit by the machine's own, and leaves what is not named", () => {
    expect(resources({ cpus: null, memoryBytes: null, pids: null }, machine)).toEqual({
      NanoCpus: 4e9,
      Memory: 8 * GiB,
      MemorySwap: 8 * GiB,
      PidsLimit: -1,
    });
    expect(resources({}, machine)).toEqual({});
  });
});
