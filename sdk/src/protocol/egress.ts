import { z } from 'zod';
import { SandboxIdSchema } from './id.ts';

/**
 * What a sandbox may reach outside: its *network policy*.
 *
 * A policy is a name (`none`, `packages`, `public`, `ask`) or an object with rules. A rule names a *target*:
 *
 * | target | meaning |
 * |---|---|
 * | `example.org` | this name, ports 80 and 443 |
 * | `example.org:5432`, `example.org:22,443`, `example.org:8000-8010`, `example.org:*` | these ports |
 * | `*.example.org` | every name below it, and not the name itself |
 * | `*` | every name |
 * | `example.org/api` | requests whose path is `/api` or below it |
 * | `https://example.org/api` | the same on port 443 |
 * | `10.1.0.0/16`, `10.1.2.3:5432`, `[fd00::/8]:443` | addresses; without ports every port |
 * | `udp:example.org:53`, `udp:10.1.2.3:53` | datagrams, to these ports; a rule without `udp:` is about TCP |
 * | `npm` | a preset: the hosts of a registry or source host |
 *
 * The server parses targets, writes them in one canonical form, and refuses what is ambiguous.
 */

export const NAMED_POLICIES = ['none', 'packages', 'public', 'ask'] as const;
export const NamedPolicySchema = z
  .enum(NAMED_POLICIES)
  .describe(
    '`none` reaches nothing. `packages` reaches the public registries and source hosts of the usual languages. `public` reaches every public address and no private one. `ask` is `packages`, and everything else waits for an approval.',
  );
export type NamedPolicy = z.infer<typeof NamedPolicySchema>;

export const MAX_RULES = 1000;
const TargetSchema = z
  .string()
  .min(1)
  .max(1024)
  .describe('A name, a glob, an address, a CIDR or a preset, with ports and a path if need be.');

export const SecretNameSchema = z
  .string()
  .regex(
    /^[A-Za-z_][A-Za-z0-9_.-]{0,127}$/,
    'must be 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or _',
  );
const HeaderNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/, 'must be the name of an HTTP header');
const HeaderValueSchema = z
  .string()
  .max(8192)
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'must be the value of an HTTP header, without line breaks');

const EnvSchema = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, 'must be the name of an environment variable')
  .optional()
  .describe('The variable that commands find the placeholder of the secret in.');

/** How the server puts a secret on a request. The secret itself never enters the sandbox. */
export const PutSchema = z
  .discriminatedUnion('as', [
    z
      .object({ as: z.literal('placeholder'), secret: SecretNameSchema, env: EnvSchema })
      .describe('Replaces the placeholder of the secret in headers and query, basic credentials included.'),
    z
      .object({
        as: z.literal('header'),
        header: HeaderNameSchema,
        secret: SecretNameSchema.optional(),
        value: HeaderValueSchema.optional().describe(
          'With `{secret}` where the secret goes; `{secret}` if it is absent.',
        ),
        env: EnvSchema,
      })
      .describe('Sets a header, whatever the program sent in it.'),
    z
      .object({
        as: z.literal('basic'),
        username: z.string().max(256),
        secret: SecretNameSchema,
        env: EnvSchema,
      })
      .describe('Basic authentication.'),
    z
      .object({
        as: z.literal('query'),
        parameter: z.string().min(1).max(256),
        secret: SecretNameSchema,
        env: EnvSchema,
      })
      .describe('Sets a parameter of the query.'),
    z
      .object({
        as: z.literal('aws'),
        accessKeyId: z.string().regex(/^[A-Za-z0-9]{1,128}$/),
        secret: SecretNameSchema.describe('The secret access key.'),
        sessionToken: SecretNameSchema.optional().describe('The secret that is the session token.'),
        region: z.string().max(64).optional(),
        service: z.string().max(64).optional(),
        env: EnvSchema,
      })
      .describe('Signs the request again with AWS Signature Version 4.'),
    z
      .object({
        as: z.literal('git'),
        secret: SecretNameSchema,
        username: z.string().max(256).optional().describe('`x-access-token` if it is absent.'),
        env: EnvSchema,
      })
      .describe('Credentials of git over HTTPS.'),
    z
      .object({
        as: z.literal('ssh'),
        secret: SecretNameSchema.describe('A private key without a passphrase, as ssh-keygen writes it.'),
        knownHosts: z
          .array(
            z
              .string()
              .max(2048)
              .regex(/(^|\s)AAAA[A-Za-z0-9+/=]{16,}/, 'must have a host key in base64'),
          )
          .min(1)
          .max(16)
          .describe('Host keys of the target, as `ssh-keyscan` prints them. Any other is refused.'),
        username: z.string().min(1).max(64).optional().describe('`git` if it is absent.'),
        commands: z
          .enum(['git', 'any'])
          .optional()
          .describe('What may be run there: `git` fetches and pushes; `git` if it is absent.'),
        env: EnvSchema,
      })
      .describe('Git over SSH: the server logs in with the key. The target needs a port, such as `:22`.'),
  ])
  .describe('How a secret is put on requests.');
export type Put = z.infer<typeof PutSchema>;

export const EgressLimitsSchema = z
  .object({
    connections: z.int().min(1).max(100_000).optional().describe('Connections at a time.'),
    connectionsPerMinute: z.int().min(1).max(1_000_000).optional(),
    requestsPerMinute: z
      .int()
      .min(1)
      .max(1_000_000)
      .optional()
      .describe('Of HTTP requests that the server sees.'),
    bytesOut: z.int().min(0).optional().describe('Sent by the sandbox, in all.'),
    bytesIn: z.int().min(0).optional().describe('Received by the sandbox, in all.'),
    bytesPerSecond: z.int().min(1024).optional().describe('In each direction.'),
    namesPerMinute: z
      .int()
      .min(1)
      .max(100_000)
      .optional()
      .describe(
        'Names that only a glob allows and that are looked up outside for the first time in a minute. It bounds what leaves in DNS names.',
      ),
  })
  .describe('What a sandbox, or a rule in a sandbox, may use at most.');
export type EgressLimits = z.infer<typeof EgressLimitsSchema>;

export const NetworkRuleSchema = z.union([
  TargetSchema,
  z
    .object({
      to: TargetSchema,
      methods: z
        .array(z.string().regex(/^[A-Za-z]{1,32}$/))
        .min(1)
        .max(32)
        .optional()
        .describe('HTTP methods. GET covers HEAD.'),
      paths: z
        .array(z.string().startsWith('/').max(1024))
        .min(1)
        .max(256)
        .optional()
        .describe('Paths. Each covers what is below it; `*` stands for a part of one segment.'),
      headers: z
        .record(HeaderNameSchema, z.string().max(1024))
        .optional()
        .describe('Headers that a request must have, with globs as values.'),
      put: z
        .union([PutSchema, z.array(PutSchema).max(16)])
        .optional()
        .describe('Secrets that the server puts on requests to this target.'),
      limits: EgressLimitsSchema.optional(),
    })
    .strict()
    .describe('A target with conditions. Conditions on HTTPS make the server terminate TLS.'),
]);
export type NetworkRule = z.infer<typeof NetworkRuleSchema>;
export type NetworkRuleObject = Exclude<NetworkRule, string>;

export const NetworkPolicySchema = z.union([
  NamedPolicySchema,
  z
    .object({
      base: NamedPolicySchema.exclude(['ask'])
        .optional()
        .describe('What the rules begin from; `none` if absent.'),
      allow: z.array(NetworkRuleSchema).max(MAX_RULES).optional(),
      deny: z.array(NetworkRuleSchema).max(MAX_RULES).optional(),
      precedence: z
        .enum(['deny', 'allow'])
        .optional()
        .describe('Which list wins where both match; `deny` if absent.'),
      otherwise: z
        .enum(['deny', 'ask'])
        .optional()
        .describe('What happens to an attempt that nothing allows; `deny` if absent.'),
      refusals: z
        .enum(['explained', 'cut'])
        .optional()
        .describe(
          'How a refused connection to port 80 or 443 ends: with a page that says why, or as if nobody were there. `explained` if absent. The policy of the sandbox itself decides.',
        ),
      limits: EgressLimitsSchema.optional(),
    })
    .strict(),
]);
export type NetworkPolicy = z.infer<typeof NetworkPolicySchema>;

export const EgressVerdictSchema = z.enum(['allowed', 'denied', 'failed']);
export type EgressVerdict = z.infer<typeof EgressVerdictSchema>;

/** Why an attempt was denied or failed. */
export const EgressReasonSchema = z.enum([
  'no_policy',
  'no_rule',
  'deny_rule',
  'not_approved',
  'bounded',
  'invalid_target',
  'address',
  'name_mismatch',
  'http_condition',
  'ambiguous_request',
  'placeholder',
  'secret',
  'limit',
  'resolve',
  'connect',
  'tls',
  'policy_changed',
  'idle',
  'closed',
]);
export type EgressReason = z.infer<typeof EgressReasonSchema>;

/** One attempt of a sandbox to reach something: a connection, or one HTTP request on it. */
export const EgressAttemptSchema = z.object({
  id: z.string(),
  sandboxId: SandboxIdSchema,
  at: z.string().describe('When it began.'),
  name: z.string().nullable().describe('The name that was meant; null for an address.'),
  address: z.string().nullable().describe('The address that was connected to, or asked for.'),
  port: z.int(),
  protocol: z.enum(['tcp', 'udp', 'tls', 'http', 'https', 'ssh']).describe('As far as it was seen.'),
  method: z.string().nullable(),
  path: z.string().nullable().describe('Without its query.'),
  status: z.int().nullable().describe('Of the answer, where it was seen.'),
  process: z.string().nullable().describe('As the guest tells it, which a program inside can forge.'),
  verdict: EgressVerdictSchema,
  reason: EgressReasonSchema.nullable(),
  rule: z.string().nullable().describe('The rule that decided.'),
  suggestion: z.string().nullable().describe('The narrowest rule that would have allowed it.'),
  bytesOut: z.int(),
  bytesIn: z.int(),
  durationMs: z.number(),
  open: z.boolean().describe('Whether it is still going on.'),
});
export type EgressAttempt = z.infer<typeof EgressAttemptSchema>;

/** An attempt that waits for an approval. */
export const EgressApprovalSchema = z.object({
  id: z.string(),
  sandboxId: SandboxIdSchema,
  at: z.string(),
  expiresAt: z.string().describe('When it is denied if nobody answers.'),
  name: z.string().nullable(),
  address: z.string().nullable(),
  port: z.int(),
  process: z.string().nullable(),
  rule: z.string().describe('The narrowest rule that would allow it.'),
});
export type EgressApproval = z.infer<typeof EgressApprovalSchema>;

/** Rules under one word: the hosts of a registry or of a source host. */
export const EgressPresetSchema = z.object({
  name: z.string().regex(/^[a-z][a-z0-9-]{0,31}$/),
  description: z.string(),
  inPackages: z.boolean().describe('Whether the policy `packages` has it.'),
  rules: z.array(TargetSchema).max(256),
});
export type EgressPreset = z.infer<typeof EgressPresetSchema>;

export const EgressStatsSchema = z.object({
  connections: z.int().describe('Open now.'),
  attempts: z.int(),
  denied: z.int(),
  bytesOut: z.int(),
  bytesIn: z.int(),
});
export type EgressStats = z.infer<typeof EgressStatsSchema>;

/** The network of a sandbox, as it is now. */
export const SandboxNetworkSchema = z.object({
  policy: NetworkPolicySchema.describe(
    'Of the sandbox itself. A header that a rule sets to a value of its own is shown as `***`.',
  ),
  template: NetworkPolicySchema.nullable().describe(
    'Of the template that it was made from, if that has one.',
  ),
  project: NetworkPolicySchema.nullable().describe('Of its project, if that has one.'),
  installation: NetworkPolicySchema.describe('The most that any sandbox reaches.'),
  stats: EgressStatsSchema.nullable().describe('Null where the server carries no connections.'),
});
export type SandboxNetwork = z.infer<typeof SandboxNetworkSchema>;

export const SetNetworkSchema = z.object({ policy: NetworkPolicySchema }).strict();
export type SetNetwork = z.infer<typeof SetNetworkSchema>;

const SomeRules = z.array(NetworkRuleSchema).max(MAX_RULES).default([]);
/** Rules to add. A target that is allowed is taken out of the denied ones, and the other way round. */
export const AddNetworkRulesSchema = z.object({ allow: SomeRules, deny: SomeRules }).strict();
export type AddNetworkRules = z.infer<typeof AddNetworkRulesSchema>;
export type AddNetworkRulesInput = z.input<typeof AddNetworkRulesSchema>;

export const EgressAttemptListSchema = z.object({ attempts: z.array(EgressAttemptSchema) });
export const EgressApprovalListSchema = z.object({ pending: z.array(EgressApprovalSchema) });

/** An answer to an attempt that waits. */
export const AnswerApprovalSchema = z
  .object({
    verdict: z.enum(['allow', 'deny']),
    forMs: z
      .int()
      .min(1000)
      .max(30 * 86_400_000)
      .default(3_600_000)
      .describe('How long it stays allowed. It ends with the server, too.'),
  })
  .strict();
export type AnswerApproval = z.infer<typeof AnswerApprovalSchema>;

/** A target that was denied while a command ran. Other commands of the sandbox may have meant it. */
export const EgressDenialSchema = z.object({
  name: z.string().nullable(),
  address: z.string().nullable(),
  port: z.int(),
  reason: EgressReasonSchema.nullable(),
  rule: z.string().nullable().describe('The narrowest rule that would have allowed it, if one can.'),
});
export type EgressDenial = z.infer<typeof EgressDenialSchema>;
