import { CayError, PlatformNameSchema } from '@cay/sdk/protocol';

/**
 * Sandboxes with this label are made on this platform; without a value, whatever the value of the label is.
 */
export interface PlatformRule {
  label: string;
  value?: string;
  platform: string;
}

const RULE = /^([A-Za-z0-9][A-Za-z0-9_./-]{0,127})(?:=([^:,]{0,1024}))?:(.+)$/;

/** Rules as they are written: `gpu=true:cluster,team:docker`. Throws `invalid_argument`. */
export function parsePlatformRules(text: string): PlatformRule[] {
  const parts = text.split(',').map((part) => part.trim());
  return parts
    .filter((part) => part !== '')
    .map((part) => {
      const [, label, value, platform] = RULE.exec(part) ?? [];
      if (label === undefined || !PlatformNameSchema.safeParse(platform).success) {
        throw new CayError('invalid_argument', `"${part.slice(0, 200)}" is not a rule for platforms`, {
          hint: 'write LABEL=VALUE:PLATFORM or LABEL:PLATFORM, such as gpu=true:docker, with commas between rules',
        });
      }
      return { label, platform: platform!, ...(value !== undefined && { value }) };
    });
}

/** The platform of the first rule that fits. */
export function platformByLabels(
  rules: readonly PlatformRule[],
  labels: Readonly<Record<string, string>>,
): string | undefined {
  const fits = ({ label, value }: PlatformRule) =>
    Object.hasOwn(labels, label) && (value === undefined || labels[label] === value);
  return rules.find(fits)?.platform;
}
