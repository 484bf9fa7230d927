/**
 * A create whose template is an image: the record gets the image with its digest, so that it means the same
 * for ever, and what the request leaves open is as the image says.
 */
import { CayError, SandboxSpecSchema, UserSchema, type CreateSandbox } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { imagesFor } from './keeps-images.ts';

const DEFAULTS = SandboxSpecSchema.parse({});
const MOST_PORTS = 64;

/**
 * The request with the image's digest, and its user, working directory and ports where the request has the
 * defaults; with `exactly` those of the request are used all the same. Any other template is left alone.
 */
export async function pinImage(
  backend: Backend,
  request: CreateSandbox,
  exactly = false,
): Promise<CreateSandbox> {
  const image = await (await imagesFor(backend, request))?.resolveImage(request.template);
  if (!image) {
    if (!request.imageCommand) return request;
    throw new CayError(
      'invalid_argument',
      `"imageCommand" needs an image, and "${request.template}" is none here`,
    );
  }
  const { config, pinned } = image;
  const { user, workdir, ports } = request;
  const own = [...config.entrypoint, ...config.cmd];
  if (request.imageCommand && request.cmd)
    throw new CayError('invalid_argument', 'Give "cmd" or "imageCommand", not both');
  if (request.imageCommand && own.length === 0)
    throw new CayError('invalid_argument', `Image "${request.template}" has no command of its own`);
  return {
    ...request,
    template: pinned,
    workdir: !exactly && workdir === DEFAULTS.workdir && config.workdir !== '' ? config.workdir : workdir,
    // An image that names no user means root, as whom no command of ours runs unless it is asked for.
    user: !exactly && user === DEFAULTS.user && config.user !== '' ? userOf(request, config.user) : user,
    ports: ports.length > 0 ? ports : config.ports.slice(0, MOST_PORTS),
    ...(request.imageCommand && { cmd: own }),
  };
}

function userOf({ template }: CreateSandbox, user: string): string {
  if (UserSchema.safeParse(user).success) return user;
  throw new CayError(
    'invalid_argument',
    `Image "${template}" has a user that is none: "${user.slice(0, 100)}"`,
    {
      hint: 'name another user in the request',
    },
  );
}
