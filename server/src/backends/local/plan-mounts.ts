import { CayError, type Mount, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { BucketMounts } from '../../bucket-mounts/bucket-mounts.ts';
import type { InstanceMount } from '../../host/instances/instance-mount.ts';
import { USER } from '../../host/sandbox-user.ts';
import type { VolumeStore } from '../../host/volumes/volume.ts';
import { requireHostPath } from '../../policy/allow-host-path.ts';
import type { Policy } from '../../policy/policy.ts';

/**
 * What the mounts of a spec are on this machine. Rejects `not_found` for a volume that does not exist,
 * `failed_precondition` for a snapshot that is to be written, `permission_denied` for a directory of the host
 * that the operator does not allow.
 */
export function planMounts(
  {
    volumes,
    policy,
    resources,
  }: {
    volumes: VolumeStore | undefined;
    policy: Policy;
    resources: { bucketMounts?: BucketMounts | undefined };
  },
  mounts: readonly Mount[] = [],
  { sandbox, user }: { sandbox?: SandboxId | undefined; user?: string | undefined } = {},
): InstanceMount[] {
  return mounts.map((mount): InstanceMount => {
    if (mount.type === 'tmpfs') {
      const { path: target, sizeBytes, mode, noexec } = mount;
      return { kind: 'tmpfs', target, mode, noexec, ...(sizeBytes !== undefined && { sizeBytes }) };
    }
    const { path: target, readOnly } = mount;
    if (mount.type === 'bucket') {
      const why = resources.bucketMounts ? resources.bucketMounts.why() : 'the server opens no buckets';
      if (why !== undefined)
        throw new CayError('unsupported', `Cannot mount bucket "${mount.bucket}": ${why}`, {
          hint: 'give "buckets" in place of "mounts": the sandbox then has copies',
        });
      const { bucket, prefix } = mount;
      const known = { ...(sandbox && { sandbox }), ...(prefix !== undefined && { prefix }) };
      return { kind: 'bucket', bucket, target, readOnly, owner: uidOf(user), ...known };
    }
    if (mount.type === 'host')
      return { kind: 'host', target, readOnly, ...requireHostPath(policy, mount.source, readOnly) };
    const volume = volumes?.list().find(({ id }) => id === mount.volume);
    if (!volume)
      throw new CayError('not_found', `Volume "${mount.volume}" does not exist`, {
        details: { what: 'volume' },
      });
    if (volume.readOnly && !readOnly)
      throw new CayError(
        'failed_precondition',
        `Cannot mount volume "${mount.name ?? mount.volume}" to be written: it is a snapshot`,
        { hint: 'mount it read-only, or clone it' },
      );
    const { tree, readOnly: committed } = volume;
    const { subpath } = mount;
    return {
      kind: 'volume',
      tree,
      committed,
      target,
      readOnly,
      ...(subpath !== undefined && { subpath }),
    };
  });
}

/** Whose the objects are inside: the user that commands run as. */
function uidOf(user: string | undefined): number {
  if (user === 'root') return 0;
  const number = Number(user?.split(':')[0]);
  return Number.isInteger(number) && number >= 0 && number < 65_536 ? number : USER.uid;
}

/** Rejects `invalid_argument` for a mount on something that the template shows of the host. */
export function requireFreeOf(
  { mounts = [] }: Pick<SandboxSpec, 'mounts'>,
  binds: readonly { target: string }[],
): void {
  for (const { path } of mounts) {
    const bind = binds.find(({ target }) => path === target || path.startsWith(`${target}/`));
    if (bind)
      throw new CayError(
        'invalid_argument',
        `Cannot mount something at "${path}": the template has "${bind.target}" from the host, read-only`,
      );
  }
}
