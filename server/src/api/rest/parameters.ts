/** Parameters that several routes have in their path or query. */
import {
  AbsolutePathSchema,
  CommandIdSchema,
  OutputEncodingSchema,
  PortSchema,
  SnapshotIdSchema,
  UserSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';

export const SandboxParams = z.object({
  id: z.string().min(1).max(80).describe("The sandbox's id or its name"),
});
export const CommandParams = SandboxParams.extend({ cmd: CommandIdSchema });
const PortParam = z
  .string()
  .regex(/^\d{1,5}$/)
  .transform(Number)
  .pipe(PortSchema);

export const PortParams = SandboxParams.extend({ port: PortParam });
export const HostPortParams = SandboxParams.extend({ hostPort: PortParam });

export const SnapshotParams = z.object({ snapshot: SnapshotIdSchema });

/** `1` or `true`, `0` or `false`. */
export const Flag = z.enum(['0', '1', 'true', 'false']).transform((text) => text === '1' || text === 'true');

export const Count = (max: number) =>
  z
    .string()
    .regex(/^\d{1,16}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(0).max(max));

export const Moment = z.iso
  .datetime({ offset: true })
  .transform((text) => Date.parse(text))
  .describe('As in `2026-01-31T12:00:00Z`');

export const Octal = z
  .string()
  .regex(/^[0-7]{1,4}$/, 'must be octal, such as 644')
  .transform((text) => Number.parseInt(text, 8));

export const PathQuery = z.object({ path: AbsolutePathSchema, user: UserSchema.optional() }).strict();
export const EncodingQuery = z.object({ encoding: OutputEncodingSchema.optional() }).strict();
