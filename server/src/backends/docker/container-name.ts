/**
 * The status of a sandbox is in its container's name, because
 * labels cannot be changed after a container was made and a name can, in one step:
 *
 *     cay-sbx_….3            the third incarnation, whose guest has answered
 *     cay-sbx_….3.starting   it is being started
 *     cay-sbx_….3.stopping   it was asked to stop, so its end is no failure
 *     cay-sbx_….4.next       it is to take the place of the third by a rollback, which has not happened
 *     cay-sbx_….3.old        another one has taken its place
 *
 * Nothing inside the sandbox can reach this, unlike a file in one of its volumes.
 */
import { isId, type SandboxId } from '@cay/sdk/protocol';

export type Mark = 'starting' | 'stopping' | 'next' | 'old';

export interface ContainerName {
  id: SandboxId;
  incarnation: number;
  mark?: Mark;
}

const PATTERN = /^\/?cay-(sbx_[a-z0-9]+)\.([1-9][0-9]{0,14})(?:\.(starting|stopping|next|old))?$/;

export function formatContainerName({ id, incarnation, mark }: ContainerName): string {
  return `cay-${id}.${incarnation}${mark ? `.${mark}` : ''}`;
}

/** `undefined` if it is not the name of a sandbox, for example because it was renamed by hand. */
export function parseContainerName(name: string): ContainerName | undefined {
  const match = PATTERN.exec(name);
  if (!match || !isId('sbx', match[1])) return undefined;
  return {
    id: match[1] as SandboxId,
    incarnation: Number(match[2]),
    ...(match[3] && { mark: match[3] as Mark }),
  };
}
