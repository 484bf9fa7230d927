/** What a request leaves open is as the template says, which was built from a Dockerfile. */
import { CayError, type CreateSandbox } from '@cay/sdk/protocol';
import type { Records } from '../../records/records.ts';
import type { Principal } from '../tenants/principal.ts';

const MOST_PORTS = 64;

/** Its ports, and with `imageCommand` its command. User, directory and environment are the snapshot's. */
export async function withTemplateConfig(
  { templates }: Pick<Records, 'templates'>,
  { project }: Principal,
  request: CreateSandbox,
): Promise<CreateSandbox> {
  const config =
    request.snapshot === undefined ? (await templates.get(project, request.template))?.config : undefined;
  if (!config) return request;
  const own = [...config.entrypoint, ...config.cmd];
  if (request.imageCommand && request.cmd)
    throw new CayError('invalid_argument', 'Give "cmd" or "imageCommand", not both');
  if (request.imageCommand && own.length === 0)
    throw new CayError('invalid_argument', `Template "${request.template}" has no command of its own`);
  const ports = config.exposed.flatMap((each) => (each.endsWith('/tcp') ? [Number.parseInt(each, 10)] : []));
  return {
    ...request,
    ports: request.ports.length > 0 ? request.ports : ports.slice(0, MOST_PORTS),
    ...(request.imageCommand && { cmd: own }),
  };
}
